#!/bin/sh
# Run by the image of Postgres, once, when it makes the database. That is Tidemill's own, so what Postgres gives to everybody
# is taken back; in a database that others use too, that is for you to decide.
set -eu
app_password=$(cat /run/secrets/app_password)
psql --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" \
    --set app_password="$app_password" --file /etc/tidemill/roles.sql \
    --command "revoke all on database \"$POSTGRES_DB\" from public" --command "revoke all on schema public from public"
