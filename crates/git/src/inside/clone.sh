# Runs in the sandbox: brings the workspace to the start commit, whatever an earlier, killed attempt left there.
# Arguments: workspace, URL, full ref, start commit, submodules (yes or no), LFS (yes or no).
set -u
umask 022
workspace=$1 url=$2 ref=$3 start=$4 submodules=$5 lfs=$6
branch=${ref#refs/heads/}
cd "$workspace" || exit 64

if [ "$lfs" = yes ]; then git lfs version >/dev/null 2>&1 || exit 68; fi

# Directories that an earlier phase made read-only would keep their content from being replaced.
find . -xdev -type d ! -perm -u=rwx -exec chmod u+rwx {} \; 2>/dev/null
# The repository itself is always made anew: configuration, hooks and locks of an earlier attempt never count.
rm -rf .git || exit 64
format=sha1; [ ${#start} -eq 64 ] && format=sha256
git init -q --template= --object-format=$format . || exit 64
git remote add origin "$url" || exit 64
git fetch -q --no-auto-gc origin || exit 65
[ "$(git rev-parse -q --verify "refs/remotes/origin/$branch^{commit}")" = "$start" ] || exit 66
git checkout -q -f -B "$branch" --track "origin/$branch" || { [ "$lfs" = yes ] && exit 69; exit 64; }
# Untracked files go, ignored ones (node_modules and the like) stay.
git clean -q -ffd || exit 64
[ "$(git rev-parse -q --verify HEAD)" = "$start" ] || exit 66
[ -z "$(git status --porcelain --untracked-files=no --ignore-submodules=all)" ] || exit 66
if [ "$submodules" = yes ]; then
    git submodule -q update --init --recursive --force || exit 67
fi
exit 0
