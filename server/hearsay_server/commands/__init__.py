"""The commands of `hearsay`; `hearsay_server.cli` lists them, and loads one when it is run."""
