#!/bin/sh
# Lists the completed checkpoints of Flink jobs, and writes the ConfigMap that says which one is the newest of each job.
# Usage: list-checkpoints.sh FILE, where FILE gets the ConfigMap: `<job id>: chk-<number>`.
#
# DIRECTORIES  the directories of checkpoints, separated by white space, as rclone names them: `s3:bucket/path`. Below each of
#              them, at any depth, are folders `<job id>/chk-<number>`, as Flink makes them in `state.checkpoints.dir`.
# MAX_JOBS     how many jobs are kept: those with the newest checkpoints. The default keeps the ConfigMap far below its limit of
#              1 MiB, with the managed fields that the API server adds for each key.
#
# It fails, and leaves FILE alone, if a listing fails or if there is no checkpoint at all.
set -eu
file="${1:?usage: list-checkpoints.sh FILE}"
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT

: >"$folder/all"
for directory in ${DIRECTORIES:?set DIRECTORIES to the directories of checkpoints}; do
    # A checkpoint is complete when it has its `_metadata`. Files that it shares with other checkpoints are large and not
    # needed here. Using the time of the upload saves a request for each file.
    rclone lsf --recursive --files-only --format tp --separator ';' --use-server-modtime \
        --filter '- shared/**' --filter '- taskowned/**' --filter '+ **/chk-*/_metadata' --filter '- *' \
        "$directory" >"$folder/listing"
    [ -s "$folder/listing" ] || echo "list-checkpoints: there is no completed checkpoint below $directory" >&2
    cat "$folder/listing" >>"$folder/all"
done

# Of each job the highest number, compared as numbers, and the time of its last checkpoint.
awk -F ';' '
    {
        count = split($2, part, "/")
        if (count < 3) next
        job = part[count - 2]
        checkpoint = part[count - 1]
        if (length(job) != 32 || job !~ /^[0-9a-f]+$/ || checkpoint !~ /^chk-[0-9]+$/) next
        number = substr(checkpoint, 5) + 0
        if (!(job in newest) || number > newest[job]) {
            newest[job] = number
            name[job] = checkpoint
        }
        if (!(job in time) || $1 > time[job]) time[job] = $1
    }
    END { for (job in name) print time[job] ";" job ";" name[job] }
' "$folder/all" >"$folder/jobs"
if [ ! -s "$folder/jobs" ]; then
    echo "list-checkpoints: found no checkpoint in $DIRECTORIES; latest-checkpoints stays as it is. Check DIRECTORIES" >&2
    exit 1
fi
sort -r "$folder/jobs" >"$folder/by-time"
head -n "${MAX_JOBS:-5000}" "$folder/by-time" >"$folder/kept"
sort -t ';' -k 2 "$folder/kept" >"$folder/by-job"
{
    echo 'apiVersion: v1'
    echo 'kind: ConfigMap'
    echo 'metadata: {name: latest-checkpoints, namespace: flink-dr}'
    echo 'data:'
    awk -F ';' '{ print "  \"" $2 "\": " $3 }' "$folder/by-job"
} >"$file.new"
mv "$file.new" "$file"
