"""The operator's pages: whether all is well, surveys, trainings, tokens and the audit log."""

from hearsay_server.pages.operator import acts, overview, surveys, tokens, trainings

PAGES = (*overview.PAGES, *surveys.PAGES, *trainings.PAGES, *tokens.PAGES, *acts.PAGES)
