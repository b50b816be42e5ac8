#!/bin/sh
# Makes the secrets of docker-compose.yml: sh deploy/secrets.sh [DIRECTORY]
# A file that is there already is kept, so that it can be run again.
set -eu

directory=${1:-secrets}
umask 022
mkdir -p "$directory"
# Only its owner may enter. The files are open, because Compose mounts them as they are and services run under other
# accounts.
chmod 700 "$directory"

word() {
    head -c 24 /dev/urandom | base64 | tr '+/' '-_' | tr -d '=\n'
}

keep() {
    test -e "$directory/$1" || printf '%s\n' "$2" > "$directory/$1"
}

keep owner_password "$(word)"
keep app_password "$(word)"
keep broker.conf "requirepass $(word)"
keep flower_auth "operator:$(word)"
keep grafana_password "$(word)"
keep owner_url "postgresql://tidemill:$(cat "$directory/owner_password")@postgres:5432/tidemill"
keep app_url "postgresql://tidemill_app:$(cat "$directory/app_password")@postgres:5432/tidemill"
keep broker_url "redis://:$(sed 's/requirepass //' "$directory/broker.conf")@broker:6379/0"
# Empty until there is one: tidemill token create metrics --role viewer
test -e "$directory/metrics_token" || : > "$directory/metrics_token"
