/* SPDX-License-Identifier: Apache-2.0
 * Persistent memory and its ring: part of headrace.h, which includes this file. */
#ifndef HEADRACE_C_PMEM_H
#define HEADRACE_C_PMEM_H
#ifndef HEADRACE_H
#error "include headrace.h"
#endif

/* A mapped file or DAX device, as in headrace/pmem/mapping.hpp; on an ordinary file durability
 * costs an msync. Threading: shared; the users of the bytes synchronise their accesses. */
typedef struct headrace_pmem headrace_pmem;

/* Maps a whole existing file or device. `error` may be null.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_pmem_unmap(). */
headrace_pmem* headrace_pmem_map(const char* path, headrace_error* error) HEADRACE_C_NOEXCEPT;
void headrace_pmem_unmap(headrace_pmem* pmem) HEADRACE_C_NOEXCEPT;
void* headrace_pmem_data(const headrace_pmem* pmem) HEADRACE_C_NOEXCEPT;
size_t headrace_pmem_bytes(const headrace_pmem* pmem) HEADRACE_C_NOEXCEPT;
/* Copy, set, or take ranges of the mapping that were stored otherwise, and make them durable.
 *
 * Returns: false if the memory has failed: the file was truncated, its disk is full, or an msync
 *          failed. The bytes may then not be durable, or lost. */
bool headrace_pmem_copy(headrace_pmem* pmem, void* target, const void* source,
                        size_t byte_count) HEADRACE_C_NOEXCEPT;
bool headrace_pmem_set(headrace_pmem* pmem, void* target, int value,
                       size_t byte_count) HEADRACE_C_NOEXCEPT;
bool headrace_pmem_persist(headrace_pmem* pmem, const void* begin,
                           size_t byte_count) HEADRACE_C_NOEXCEPT;

/* A ring in a file, with one producer and one consumer, in one process or two, as in
 * headrace/pmem/ring.hpp. Threading: each end one thread at a time. */
typedef struct headrace_ring_producer headrace_ring_producer;
typedef struct headrace_ring_consumer headrace_ring_consumer;

enum headrace_enqueue HEADRACE_C_ENUM {
  HEADRACE_ENQUEUE_DONE,      /* The entry is durable. */
  HEADRACE_ENQUEUE_FULL,      /* No room until the consumer acknowledges. Nothing was written. */
  HEADRACE_ENQUEUE_TOO_LARGE, /* Nothing was written. */
  HEADRACE_ENQUEUE_LOST,      /* The memory failed. */
  HEADRACE_ENQUEUE_FORKED     /* The end belongs to the parent of this process. */
};
enum headrace_next HEADRACE_C_ENUM {
  HEADRACE_NEXT_ENTRY,
  HEADRACE_NEXT_EMPTY,
  HEADRACE_NEXT_DAMAGED, /* The next entry is damaged; every later call reports it again. */
  HEADRACE_NEXT_LOST,
  HEADRACE_NEXT_FORKED
};

/* Makes a ring with room for `capacity_bytes`, at least 4 KiB, in a new file. False on failure,
 * with the reason in `error`, which may be null; no file is left behind. */
bool headrace_ring_make(const char* path, uint64_t capacity_bytes,
                        headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Take a role, after recovery of what a crash left.
 *
 * Returns: null on failure, with the reason in `error`. Give it back with headrace_ring_..._free().
 */
headrace_ring_producer* headrace_ring_produce(const char* path,
                                              headrace_error* error) HEADRACE_C_NOEXCEPT;
headrace_ring_consumer* headrace_ring_consume(const char* path,
                                              headrace_error* error) HEADRACE_C_NOEXCEPT;
void headrace_ring_producer_free(headrace_ring_producer* producer) HEADRACE_C_NOEXCEPT;
void headrace_ring_consumer_free(headrace_ring_consumer* consumer) HEADRACE_C_NOEXCEPT;
/* Appends an entry of at most an eighth of the ring. */
enum headrace_enqueue headrace_ring_enqueue(headrace_ring_producer* producer, const void* entry,
                                            size_t byte_count) HEADRACE_C_NOEXCEPT;
/* Lends the oldest entry not yet lent; its bytes are valid until it is acknowledged. */
enum headrace_next headrace_ring_next(headrace_ring_consumer* consumer, const void** entry,
                                      size_t* byte_count) HEADRACE_C_NOEXCEPT;
/* Removes every entry lent so far, durably. */
void headrace_ring_acknowledge(headrace_ring_consumer* consumer) HEADRACE_C_NOEXCEPT;

#endif
