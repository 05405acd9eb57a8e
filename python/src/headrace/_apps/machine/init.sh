#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first process of a guest. In the image it mounts this system's root, with a layer in memory
# for writes, and goes there; in that root (its argument is "command") it runs the command.
# /dev/vport0p1 is the control port: "started", "failed WHY" and "exit CODE LAYER" go out,
# "signal NAME" and "size ROWS COLUMNS" come in. Ports 2, 3 and 4 are stdin, stdout and stderr,
# but for those that are a terminal, which is /dev/hvc0.
state=/run/headrace-machine
bin=/bin/busybox

fail() {
  echo "failed $*" >/dev/vport0p1
  $bin sleep 1000
}

enter_root() {
  $bin mount -t proc proc /proc
  $bin mount -t sysfs sys /sys
  $bin mount -t devtmpfs dev /dev
  $bin mkdir -p /dev/shm /dev/pts
  $bin ln -s /proc/self/fd /dev/fd
  for fd in 0:stdin 1:stdout 2:stderr; do $bin ln -s "fd/${fd%:*}" "/dev/${fd#*:}"; done
  $bin mount -t tmpfs shm /dev/shm
  $bin mount -t devpts -o mode=620,gid=5 pts /dev/pts
  while read -r file; do $bin insmod "$file"; done </etc/machine/modules
  $bin ip link set lo up
  # Loose: the files are taken not to change while the guest runs.
  options=trans=virtio,version=9p2000.L,msize=512000
  $bin mount -t 9p -o "ro,cache=loose,$options" root /host || fail "the root cannot be mounted"
  $bin mount -t tmpfs -o size=90% layer /layer
  $bin mkdir /layer/upper /layer/work
  $bin mount -t overlay -o lowerdir=/host,upperdir=/layer/upper,workdir=/layer/work root /new ||
    fail "the layer for writes cannot be mounted"
  number=0
  while read -r folder; do
    $bin mount -t 9p -o "cache=mmap,$options" "write$number" "/new$folder" ||
      fail "'$folder' cannot be mounted"
    number=$((number + 1))
  done </etc/machine/folders
  $bin mkdir -p "/new$state"
  $bin mount -t tmpfs state "/new$state"
  $bin cp /bin/busybox /init /etc/machine/* "/new$state/"
  $bin mkdir "/new$state/layer"
  $bin mount --move /layer "/new$state/layer"
  for name in proc sys dev; do $bin mount --move "/$name" "/new/$name"; done
  exec $bin switch_root /new $state/busybox sh $state/init command
}

# Mounts the file system with DAX of NVDIMM $1, by its handle in the firmware's tables, for node $2;
# makes one if the NVDIMM is new. Regions are not numbered in the order of the DIMMs.
mount_dimm() {
  for region in /sys/bus/nd/devices/region*; do
    dimm=$($bin cut -d, -f1 "$region/mapping0")
    [ "$($bin cat "/sys/bus/nd/devices/$dimm/nfit/handle")" = "0x$1" ] && break
  done
  region=${region##*region}
  case $($bin cat "/sys/bus/nd/devices/namespace$region.0/mode") in
    raw)
      ndctl create-namespace -f -e "namespace$region.0" -m fsdax --map=mem >/dev/null &&
        mkfs.ext4 -q -F -b 4096 "/dev/pmem$region" ||
        fail "no file system could be made on the persistent memory of node $2"
      ;;
    fsdax | memory) ;;
    *) return ;; # devdax: a program's own.
  esac
  $bin mkdir -p "/mnt/pmem$2"
  for type in ext4 xfs; do
    $bin mount -t $type -o dax=always "/dev/pmem$region" "/mnt/pmem$2" 2>/dev/null && return
  done
  echo "headrace: /dev/pmem$region of node $2 has no file system that can be mounted" >/dev/ttyS0
}

obey() {
  while read -r what value; do
    case $what in
      signal) $bin kill -s "$value" -- "-$($bin cat group)" ;;
      size) $bin stty rows "${value% *}" cols "${value#* }" </dev/hvc0 ;;
    esac
  done <&7
}

run_command() {
  export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  bin=$state/busybox
  cd $state || exit
  exec 7<>/dev/vport0p1
  # TERMINAL: those of "stdin stdout stderr" that are the terminal. DIMMS: the node of each.
  . ./settings
  number=0
  for node in $DIMMS; do
    number=$((number + 1))
    mount_dimm $number "$node"
  done
  # Through pipes, because a port can be opened only once, and a program may open /dev/stdout.
  keep=" $$"
  port=1
  for stream in stdin stdout stderr; do
    port=$((port + 1))
    case $TERMINAL in
      *$stream*) $bin ln -s /dev/hvc0 $stream; continue ;;
    esac
    $bin mkfifo $stream
    if [ $stream = stdin ]; then
      $bin cat </dev/vport0p$port >stdin &
    else
      $bin cat <$stream >/dev/vport0p$port &
      keep="$keep $!"
    fi
  done
  obey &
  # In the foreground: what a shell without job control runs in the background ignores SIGINT.
  begin="echo \$\$ >group; echo started >&7; exec 7>&-; . $state/command"
  if [ -n "$TERMINAL" ]; then
    $bin setsid -c $bin sh -c "$begin" </dev/hvc0
  else
    $bin setsid $bin sh -c "$begin"
  fi
  code=$?
  # What the command left running ends with it.
  for path in /proc/[0-9]*; do
    case "$keep " in
      *" ${path#/proc/} "*) ;;
      *) kill -9 "${path#/proc/}" 2>/dev/null ;;
    esac
  done
  wait ${keep# $$}
  set -- $($bin df -P -k $state/layer | $bin tail -n 1)
  $bin sync
  echo "exit $code $4" >&7
  $bin sleep 1000
}

case $1 in
  command) run_command ;;
  *) enter_root ;;
esac
