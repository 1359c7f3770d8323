"""The commands of `hearsay`, a file for each group; `hearsay_server.cli` lists them."""
