"""Web pages of a server, for its operator, its analysts and the people who are asked."""

from hearsay_server.pages.site import make_site as make_site
