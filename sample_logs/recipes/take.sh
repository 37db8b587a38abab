#!/bin/bash
# take.sh RUN...: what a sample keeps of run folders OUT/<framework>-<version>/<case>, to ../genuine.
set -eu
genuine=$(cd "$(dirname "$0")/../genuine" && pwd)
for run; do
    cd "$run"
    case=$genuine/$(basename "$(dirname "$PWD")")/$(basename "$PWD")
    mkdir -p "$case"
    # The companions: event files, monitors' CSV, JSON. What is not compressed of torchtitan's spans stays.
    find . \( -name run.log -o -name command.txt -o -name truth.json -o -name '*tfevents*' \
        -o -name '*.csv' -o -name '*.jsonl.gz' -o -name trainer_state.json -o -name scalars.json \) \
        -exec cp --parents {} "$case" \;
    cd - > /dev/null
done
