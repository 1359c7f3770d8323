#!/bin/sh
# Make a certificate by an authority of one's own, where there is none:
#
#     make-certificate.sh NAME FOLDER AUTHORITY [OWNER]
#
# NAME is the host name, or the address, that devices call. FOLDER gets server.pem, server.key and
# ca.pem, which devices are to trust: Tls("ca.pem"), hearsay --ca ca.pem. AUTHORITY keeps the key of the
# authority, which nobody else needs. OWNER is the number of the user who reads server.key, if that is
# not root. A certificate of this authority is made anew for another name, and where it ends within 60
# days. A certificate of another authority is left alone.
set -eu
umask 077
name=$1 folder=$2 authority=$3
case $name in
*[!0-9A-Za-z.:-]* | "") echo "NAME must be a host name or an address, got '$name'" >&2 && exit 1 ;;
*:*) alternative="IP:$name" ;;
*[!0-9.]*) alternative="DNS:$name" ;;
*) alternative="IP:$name" ;;
esac

work=$(mktemp -d "$authority/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
cat >"$work/conf" <<END
[req]
distinguished_name = name
prompt = no
[name]
CN = $name
[authority]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
authorityKeyIdentifier = keyid
subjectAltName = $alternative, DNS:localhost, IP:127.0.0.1
END

if [ -e "$folder/server.pem" ]; then
    if ! openssl verify -no_check_time -CAfile "$authority/ca.pem" "$folder/server.pem" \
        >"$work/said" 2>&1; then
        echo "$folder/server.pem is of another authority, and stays"
        exit 0
    fi
    named=$(openssl x509 -noout -subject -nameopt multiline -in "$folder/server.pem" |
        sed -n 's/^ *commonName *= //p')
    if [ "$named" = "$name" ] && [ -e "$folder/server.key" ] &&
        [ "$(openssl pkey -pubout -in "$folder/server.key")" = \
            "$(openssl x509 -noout -pubkey -in "$folder/server.pem")" ] &&
        openssl x509 -noout -checkend 5184000 -in "$folder/server.pem" >"$work/said"; then
        echo "$folder/server.pem is good for 60 days more"
        exit 0
    fi
fi

key() {
    openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out "$1"
}

if [ ! -e "$authority/ca.pem" ]; then
    key "$authority/ca.key"
    openssl req -x509 -new -config "$work/conf" -extensions authority -days 3650 \
        -subj "/CN=Hearsay, authority of $name" -key "$authority/ca.key" -out "$work/ca.pem"
    mv "$work/ca.pem" "$authority/ca.pem"
fi

key "$work/server.key"
openssl req -new -config "$work/conf" -key "$work/server.key" -out "$work/request"
openssl x509 -req -in "$work/request" -CA "$authority/ca.pem" -CAkey "$authority/ca.key" -days 397 \
    -set_serial "0x$(openssl rand -hex 16)" -extfile "$work/conf" -extensions server \
    -out "$work/server.pem" 2>"$work/said"
install -m 644 "$authority/ca.pem" "$folder/ca.pem"
install -m 600 ${4:+-o "$4"} "$work/server.key" "$folder/server.key"
install -m 644 "$work/server.pem" "$folder/server.pem"
echo "made $folder/server.pem for $name; devices trust $folder/ca.pem"
