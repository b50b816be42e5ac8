#!/bin/sh
# Approves one purchase, from outside: sh approve.sh http://127.0.0.1:8765 approve.token
# Ends with 0 when one was approved or declined, with 3 when there was none.
set -eu
url=$1 most=1000
header=$(mktemp)
trap 'rm -f "$header"' EXIT
# In a file of our own, because others see the arguments of a program.
printf 'Authorization: Bearer %s\n' "$(cat "$2")" >"$header"

# post PATH BODY: the answer, and on a line of its own the status.
post() {
    curl --silent --show-error --max-time 90 --retry 5 --retry-connrefused --header @"$header" --header 'Content-Type: application/json' \
        --data "$2" --write-out '\n%{http_code}' "$url/api/v1/$1"
}

# field NAME: a number, or text without quotes in it, of the task.
field() {
    printf '%s\n' "$polled" | sed -n 's/^{"tasks":\[{\(.*\)"args":.*/\1/p' | tr ',' '\n' |
        sed -n "s/^\"$1\":\"\\{0,1\\}\\([^\"]*\\)\"\\{0,1\\}\$/\\1/p"
}

polled=$(post actors/approve/poll '{"limit": 1, "wait": "20s"}')
case $polled in
'{"tasks":[{'*) ;;
'{"tasks":[]}'*) echo "nothing to approve"; exit 3 ;;
*) echo "$polled" >&2; exit 1 ;;
esac
process=$(field process_id) task=$(field task) epoch=$(field epoch) key=$(field pass_key)
amount=$(printf '%s\n' "$polled" | sed -n 's/.*"args":\["[^"]*",\([0-9]*\)\].*/\1/p')

# Whatever takes long says now and then that it is still at work.
post "tasks/$process/$task/heartbeat" "{\"pass_key\": \"$key\"}"
echo

if [ "$amount" -le "$most" ]; then
    answer='"value": {"by": "approve.sh"}'
else
    answer="\"error\": {\"type\": \"Declined\", \"message\": \"$amount is more than $most\"}"
fi
released=$(post "tasks/$process/$task/release" "{\"pass_key\": \"$key\", \"epoch\": $epoch, $answer}")
echo "$released"
case $released in
*'
200') ;;
*) exit 1 ;;
esac
