"""The analyst's pages: what the crowd says, and how certain that is."""

from hearsay_server.pages.analyst.show import PAGES as PAGES
