#!/bin/sh
# Files each new finding as an issue, once. OWNER/REPO: the repository.
for file in /srv/perf/issues/*.md; do
  [ -e "$file" ] || continue
  title=$(sed -n '1{s/^# //;s/\\//g;p;q;}' "$file")
  gh issue create --repo OWNER/REPO --title "$title" --body-file "$file" && rm "$file"
done
