# Runs in the sandbox: commits the tree as it stands on top of what the agent committed, and pushes the run's branch.
# Arguments: workspace, URL, full ref, start commit, commit message, LFS (yes or no).
#
# The agent may have left anything in `.git`: locks, hooks, another branch, no branch, nothing at all. So the commit
# is made from a repository of its own that borrows the workspace's objects.
set -u
umask 022
workspace=$1 url=$2 ref=$3 start=$4 message=$5 lfs=$6
cd "$workspace" || exit 64
own=$(mktemp -d) || exit 64
trap 'rm -rf "$own"' EXIT

head=$(git rev-parse -q --verify 'HEAD^{commit}' 2>/dev/null) || head=$start
top=$(git rev-parse --absolute-git-dir 2>/dev/null) || top=
# A `.git` that is missing must not make an outer directory's repository count.
[ -e .git ] || { head=$start; top=; }

format=sha1; [ ${#start} -eq 64 ] && format=sha256
git init -q --bare --template= --object-format=$format "$own/git" || exit 64
if [ -n "$top" ] && [ -d "$top/objects" ]; then
    printf '%s\n' "$top/objects" >"$own/git/objects/info/alternates"
fi
export GIT_DIR="$own/git" GIT_WORK_TREE="$workspace" GIT_INDEX_FILE="$own/index"
git config core.bare false
git remote add origin "$url"
git cat-file -e "$start^{commit}" 2>/dev/null || git fetch -q origin "$ref" || exit 65
git cat-file -e "$head^{commit}" 2>/dev/null || head=$start
git merge-base --is-ancestor "$start" "$head" || exit 70
if [ "$lfs" = yes ] && [ -n "$top" ] && [ -d "$top/lfs" ]; then git config lfs.storage "$top/lfs"; fi

git read-tree "$head" || exit 64
if ! git add -A 2>"$own/why"; then
    # Files that their owner may not read are made readable; git keeps no such permission anyway.
    find . -xdev -path ./.git -prune -o \( -type d ! -perm -u=rx -exec chmod u+rx {} \; \) 2>/dev/null
    find . -xdev -path ./.git -prune -o \( -type f ! -perm -u=r -exec chmod u+r {} + \) 2>/dev/null
    git add -A || exit 71
fi

# A repository that the agent made inside the workspace would become a link to a commit that nobody else has.
git diff-index --cached --raw --no-renames --diff-filter=AT "$head" >"$own/links" || exit 64
while IFS= read -r line; do
    case $line in :*' 160000 '*) ;; *) continue ;; esac
    path=${line#*	}
    case $path in '"'*) exit 72 ;; esac
    git config -f .gitmodules --get-regexp '^submodule\..*\.path$' 2>/dev/null | cut -d' ' -f2- | grep -Fxq -- "$path" && continue
    git update-index --force-remove -- "$path" || exit 72
    printf 'left-out %s\n' "$path"
done <"$own/links"

tree=$(git write-tree) || exit 64
if [ "$head" = "$start" ] && [ "$tree" = "$(git rev-parse "$start^{tree}")" ]; then
    new=$start
else
    # Also where the agent has committed everything itself: the commit on top, empty then, bears the mark by which recovery
    # knows that this push completed the phase, so that it is not run a second time.
    new=$(printf '%s\n' "$message" | git commit-tree "$tree" -p "$head") || exit 64
fi
if [ "$new" = "$start" ]; then
    printf 'unchanged %s\n' "$start"
    exit 0
fi
if [ "$lfs" = yes ]; then
    git update-ref refs/remotes/origin/start "$start" && git update-ref refs/heads/push "$new" || exit 64
    git lfs push origin refs/heads/push >&2 || exit 73
fi
git push -q --no-verify origin "$new:$ref" || exit 74
printf 'pushed %s\n' "$new"
