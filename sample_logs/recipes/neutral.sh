#!/bin/bash
# neutral.sh COMMAND...: run COMMAND (as root) under the host name node0, so that the logs name no real machine.
exec unshare --uts --mount bash -c '
    hostname node0
    hosts=$(mktemp) && echo "127.0.0.1 localhost node0" > "$hosts" && mount --bind "$hosts" /etc/hosts
    exec "$@"' neutral.sh "$@"
