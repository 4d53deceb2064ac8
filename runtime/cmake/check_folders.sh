#!/bin/sh
# check_folders.sh BUILD PREFIX FOLDER...: makes PREFIX, and ends with 1 and a message when another user could exchange it, one of the folders below it,
# or a folder on the way to them. CMake writes and removes by name: behind a folder that is exchanged for a link these would be other files.
# Who could exchange BUILD, the build folder, or this script counts as this user: the installation executes their files anyway. So root in a container
# installs into the checkout of the user who started it.
# As aotforge/base/cache_trust.py, without Python, but any group that no other account is in counts as the user's own: Debian gives its group staff
# /usr/local/lib.
set -uf
umask 022
LC_ALL=C
export LC_ALL
me=$(id -u)
my_name=$(id -un 2>/dev/null)

unknown= # in a user namespace, the number of all users that it does not know, and that of all groups
unknown_group=
if read -r first second count 2>/dev/null </proc/self/uid_map && [ "$first $second $count" != "0 0 4294967295" ]; then
  unknown=$(cat /proc/sys/kernel/overflowuid)
  unknown_group=$(cat /proc/sys/kernel/overflowgid)
fi

refuse() {
  printf '%s\n' "$@"
  exit 1
}

for start in "$1" "$1/cmake_install.cmake"; do
  [ -e "$start" ] || continue
  case $(ls -ldn "$start/." 2>/dev/null || ls -ldn "$start") in
    ????????w*) refuse "$start can be changed by any user, and the installation executes what is there" \
      "Likely cause: it was built with umask 000" "Next step: build again with umask 022, in a new folder" ;;
  esac
done

owners=" 0 $me " writers=' '
trust() {
  owners="$owners$3 "
  case $1 in
    d????????[tT]* | d????w*+) ;; # with an ACL the group may have fewer rights
    d????w*) [ "$4" = "$unknown_group" ] || writers="$writers$4 " ;;
  esac
}
for start in "$1" "${0%/*}"; do
  folder=$(cd "$start" && pwd -P) || refuse "$start cannot be entered"
  while :; do
    trust $(ls -ldn "${folder:-/}")
    [ -n "$folder" ] || break
    folder=${folder%/*}
  done
done
shift

# A folder above may be the system's, whose users a namespace does not know.
is_trusted() {
  if [ "$1" = "$unknown" ]; then [ "$2" = above ]; else [ "${owners#* "$1" }" != "$owners" ]; fi
}

accounts() {
  getent "$@" 2>/dev/null || cat "/etc/$1" 2>/dev/null
}

# Whether the group $1 has no other account, in its list or as its first group.
is_private() {
  accounts group "$1" | {
    found=
    while IFS=: read -r _ _ gid members; do
      [ "$gid" = "$1" ] || continue
      found=1
      IFS=,
      for member in $members; do
        [ "$member" = root ] || [ "$member" = "$my_name" ] || exit 1
      done
    done
    [ -n "$found" ]
  } && accounts passwd | while IFS=: read -r _ _ uid gid _; do
    [ "$gid" != "$1" ] || [ "$uid" = 0 ] || [ "$uid" = "$me" ] || exit 1
  done
}

# KIND SHOWN, then a line of ls -ldn. KIND is `above` for what only leads to a folder: there the sticky bit protects the next one, which is checked, too;
# `end` for a folder that is written to; `below` for what was found there, where nothing is a link; `pack` for image packs, which are replaced where they
# differ, and others stay; `file` for a file that CMake may leave as it is.
check() {
  kind=$1 shown=$2 mode=${3:-} owner=${5:-} group=${6:-}
  is_trusted "$owner" "$kind" || refuse "$shown belongs to user ${owner:-?}, who could exchange what is installed" \
    "Next step: install as that user, or into another prefix (CMAKE_INSTALL_PREFIX, DESTDIR)"
  case "$kind $mode" in
    "below l"*) refuse "$shown is a link, and no installation makes one there" "Next step: look at what it leads to, and remove it" ;;
    *" l"* | "above d"????????[tT]*) return ;;
    *" d"* | "below -"* | "file -"* | "pack "*) ;;
    *) refuse "$shown is neither a file nor a folder that an installation makes" "Next step: remove it, or install into another prefix (CMAKE_INSTALL_PREFIX, DESTDIR)" ;;
  esac
  case $mode in
    # with an ACL (+) these bits are the most that its users and groups may do
    ????????w* | ?????w*+) ;;
    ?????w*) if [ "${writers#* "$group" }" != "$writers" ] || is_private "$group"; then return; fi ;;
    *) return ;;
  esac
  refuse "$shown has the mode $mode and the group $group: other users can write it, and could exchange what is installed" \
    "Next step: look at what is in it and remove that right (chmod go-w), or install into another prefix (CMAKE_INSTALL_PREFIX, DESTDIR)"
}

# Checks everything that is read to find the path $1, and sets `at` to its end, without links; empty where it is missing. $2: `make` to make it.
follow() {
  rest=$1 at='' links=0
  while rest=${rest#"${rest%%[!/]*}"} && [ -n "$rest" ]; do
    part=${rest%%/*}
    rest=${rest#"$part"}
    check above "${at:-/}" $(ls -ldn "${at:-/}")
    next=$at/$part
    case $part in
      .) continue ;;
      ..)
        at=${at%/*}
        continue
        ;;
    esac
    if [ -h "$next" ]; then
      check above "$next" $(ls -ldn "$next")
      links=$((links + 1))
      [ "$links" -le 40 ] || refuse "$1 is a link to itself"
      target=$(readlink "$next")
      case $target in /*) at='' ;; esac
      rest=$target/$rest
      continue
    fi
    if [ ! -e "$next" ]; then
      [ "$2" = make ] || [ "$links" = 0 ] || refuse "$1 leads to $next, which is not there" "Next step: make that folder, or remove the link"
      if [ "$2" != make ]; then
        at=''
        return
      fi
      mkdir "$next" || [ -d "$next" ] || refuse "$next cannot be made"
    fi
    at=$next
  done
}

case $1 in
  /*) prefix=$1 ;;
  *) prefix=$PWD/$1 ;;
esac
shift
follow "$prefix" make
check end "$prefix" $(ls -ldn "${at:-/}")
case $at in
  *\\*) refuse "$prefix leads to $at, where CMake takes the backslash for a slash" "Next step: name another folder" ;;
esac
prefix=$at # what is missing below may be behind the user's own links to the prefix
for folder in "$@"; do
  path=$prefix below=$folder/
  while [ -n "$below" ]; do
    path=$path/${below%%/*}
    below=${below#*/}
    follow "$path" find
    [ -n "$at" ] || break
    check end "$path" $(ls -ldn "$at")
  done
  [ -n "$at" ] || continue
  case $folder in
    lib/.*) kind=below && set -- -type d ;; # what a killed installation has left: it is removed
    lib/aotriton.images) kind=pack && set -- ;;
    *) kind=below && set -- ;;
  esac
  find "$at" "$@" -exec ls -ldn {} + | while read -r line; do
    check $kind "/${line#* /}" $line
  done || exit 1
done
follow "$prefix/lib/" find
lock=$at/.aotriton.images.lock # file(LOCK) makes the file empty that it opens
if [ -n "$at" ] && { [ -e "$lock" ] || [ -h "$lock" ]; }; then
  set -- $(ls -ldn "$lock" 2>/dev/null)
  case "${1:-} ${2:-}" in
    -*" 1" | " ") ;; # another installation may have ended, and removed it
    *) refuse "$lock is not a file of one name" "Next step: remove it" ;;
  esac
fi
# CMake leaves a file with the time of its own as it is
for folder in lib include; do
  follow "$prefix/$folder" find
  [ -z "$at" ] || find "$at" -maxdepth 1 "(" -name "*aotriton_v2.*" -o -name "libaotforge_ops.*" -o -name "dl.*" -o -name "libdl.*" -o -name dlfcn.h -o -name .aotriton.images.lock ")" \
    -exec ls -ldn {} + | while read -r line; do
    check file "/${line#* /}" $line
  done || exit 1
done
