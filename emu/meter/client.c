/* SPDX-License-Identifier: Apache-2.0 */
/* A plain DSA client, unaware of any emulation: opens a work queue, maps its portal and submits
 * with ENQCMD. 'headrace bench emulator' runs it under 'headrace emulate'; it also runs on
 * hardware.
 *
 *   headrace-emulator-client QUEUE_FILE ROUNDS NOOPS COPY_BYTES */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "rounds.h"

/* ENQCMD portal, descriptor: writes 64 bytes to the portal of a shared queue; ZF set means full,
 * retry. The bytes encode "enqcmd (%rdx), %rax", which not every assembler supports. */
static bool enqcmd(void* portal, const struct dsa_hw_desc* descriptor) {
  unsigned char retry;
  __asm__ volatile(
      ".byte 0xf2, 0x0f, 0x38, 0xf8, 0x02\n\t"
      "setz %0"
      : "=r"(retry)
      : "a"(portal), "d"(descriptor)
      : "memory", "cc");
  return retry == 0;
}

int main(int argc, char** argv) {
  if (argc != 5) {
    fprintf(stderr, "usage: %s QUEUE_FILE ROUNDS NOOPS COPY_BYTES\n", argv[0]);
    return 2;
  }
  const int file = open(argv[1], O_RDWR);
  if (file < 0) {
    fprintf(stderr, "cannot open %s: %s\n", argv[1], strerror(errno));
    return 1;
  }
  void* const portal = mmap(NULL, 4096, PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0);
  if (portal == MAP_FAILED) {
    fprintf(stderr, "cannot map %s: %s\n", argv[1], strerror(errno));
    return 1;
  }
  close(file);
  const struct meter_portal queue = {portal, enqcmd};
  const struct meter_scale scale = {
      .round_count = (unsigned)strtoul(argv[2], NULL, 10),
      .noop_count = (unsigned)strtoul(argv[3], NULL, 10),
      .copy_bytes = strtoul(argv[4], NULL, 10),
  };
  return meter_run(&queue, &scale, stdout);
}
