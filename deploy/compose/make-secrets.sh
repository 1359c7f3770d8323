#!/bin/sh
# Make the passwords of this deployment in a folder, where they are not there yet:
#
#     make-secrets.sh FOLDER
#
# Each file is for the user of one container: no password is in an environment, which `docker inspect`
# shows. PostgreSQL takes its password when its volume is made: keep the two volumes together.
set -eu
umask 077
folder=$1

# The name of a file, the number of the user who reads it, and its text.
write() {
    [ -e "$folder/$1" ] && return
    printf '%s\n' "$3" >"$folder/.new"
    chown "$2" "$folder/.new"
    chmod 400 "$folder/.new"
    mv "$folder/.new" "$folder/$1"
}

# Numbers of the images: 0 starts PostgreSQL, 10001 is hearsay, 472 is Grafana.
write postgres-password 0 "$(openssl rand -hex 24)"
write server.toml 10001 "database = \"postgresql://hearsay:$(cat "$folder/postgres-password")@postgres/hearsay\""
write grafana-password 472 "$(openssl rand -hex 12)"
chmod 711 "$folder"
