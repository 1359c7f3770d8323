#!/bin/sh
# Back the database up, now unless the last backup is younger than 23 hours, and then every day:
#
#     back-up.sh FOLDER KEEP [RECIPIENT]
#
# KEEP backups stay, the newest. With a RECIPIENT, a public key of age, they are encrypted. Whether the
# last one is there, the container's health says.
set -u
folder=$1 keep=$2 recipient=${3:-}
trap 'exit 0' TERM INT

while :; do
    pause=3600
    if [ -z "$(find "$folder" -name '*.backup' -mmin -1380)" ]; then
        file=$folder/$(date -u +%Y-%m-%dT%H%M%SZ).backup
        if hearsay backup ${recipient:+--recipient "$recipient"} "$file"; then
            ls -1r "$folder" | grep '\.backup$' | tail -n "+$((keep + 1))" |
                while read -r old; do rm -- "$folder/$old"; done
        else
            pause=300
        fi
    fi
    sleep "$pause" &
    wait $!
done
