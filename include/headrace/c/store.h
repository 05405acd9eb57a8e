/* SPDX-License-Identifier: Apache-2.0
 * The block store: part of headrace.h, which includes this file. */
#ifndef HEADRACE_C_STORE_H
#define HEADRACE_C_STORE_H
#ifndef HEADRACE_H
#error "include headrace.h"
#endif

/* Blocks by key in tiers of memory and files, as in headrace/store/store.hpp. Threading: shared. */
typedef struct headrace_store headrace_store;
/* A submitted batch. Threading: shared, except for headrace_transfer_free(). */
typedef struct headrace_transfer headrace_transfer;

/* Zero except for the capacity: memory on any node. */
typedef struct headrace_tier {
  size_t struct_size;      /* sizeof(headrace_tier); the same in all of a store. */
  uint64_t capacity_bytes; /* 0, for existing files only: unchanged. */
  const char* path;        /* File of the tier; null: memory. */
  bool has_node;           /* `node` is set. */
  uint32_t node;           /* Of memory. */
  bool process_only;       /* The file survives the process, but not a power failure. */
} headrace_tier;

typedef struct headrace_store_options {
  size_t struct_size;         /* sizeof(headrace_store_options). */
  uint64_t block_bytes;       /* Maximum block length; 0: 1 MiB; at most 1 GiB. */
  const headrace_tier* tiers; /* The fastest first. */
  size_t tier_count;          /* 1 to 4. */
  bool no_checksums;          /* False: each block has a CRC-32C, verified when read. */
  bool never_promote; /* False: a block read twice from another tier is copied to the first. */
  bool never_inline;  /* False: the caller copies transfers of up to 256 KiB in all. */
  /* Serve the store to other processes until it is freed: path of a socket to make, at which they
   * connect. The first tier is memory on any node then. Null: do not. */
  const char* share;
  uint32_t clients_max; /* Clients at a time, up to 64; 0: 16. */
} headrace_store_options;

/* How the transfer of one block ended; headrace_outcome_text() explains it. */
enum headrace_outcome HEADRACE_C_ENUM {
  HEADRACE_OUTCOME_RUNNING,
  HEADRACE_OUTCOME_DONE,
  HEADRACE_OUTCOME_UNKNOWN_KEY,
  HEADRACE_OUTCOME_BAD_KEY,
  HEADRACE_OUTCOME_WRONG_LENGTH,
  HEADRACE_OUTCOME_NO_SUCH_TIER,
  HEADRACE_OUTCOME_FULL,
  HEADRACE_OUTCOME_CORRUPT,
  HEADRACE_OUTCOME_FAILED,
  HEADRACE_OUTCOME_LATE_WRITE,
  HEADRACE_OUTCOME_IO_FAILED,
  HEADRACE_OUTCOME_CLOSED,
  HEADRACE_OUTCOME_TIMED_OUT,
  HEADRACE_OUTCOME_DISK_FULL
};
/* "unknown_key"; and a sentence with meaning and remedy. */
const char* headrace_outcome_name(enum headrace_outcome outcome) HEADRACE_C_NOEXCEPT;
const char* headrace_outcome_text(enum headrace_outcome outcome) HEADRACE_C_NOEXCEPT;

/* Copies the key; borrows the bytes until the transfer has ended. */
typedef struct headrace_put_block {
  const void* key;
  size_t key_bytes; /* 1 to 192. */
  const void* source;
  size_t byte_count;
} headrace_put_block;
typedef struct headrace_get_block {
  const void* key;
  size_t key_bytes;
  void* target;
  size_t byte_count; /* Of the target: at least the length of the block. */
} headrace_get_block;

/* Makes a store, with the blocks of existing files. The engine outlives it. `error` may be null.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_store_free(). */
headrace_store* headrace_store_make(headrace_engine* engine, const headrace_store_options* options,
                                    headrace_error* error) HEADRACE_C_NOEXCEPT;
/* As headrace_store_make(), but the store is that which a process serves at `socket`, until another
 * one does. A request that it has not answered after `deadline_ms` ends as timed_out; 0: 30 s. */
headrace_store* headrace_store_connect(headrace_engine* engine, const char* socket,
                                       uint64_t deadline_ms,
                                       headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Waits for all transfers first. Null is ignored. In a child of fork() the store is closed, and
 * this does nothing: it is its parent's. */
void headrace_store_free(headrace_store* store) HEADRACE_C_NOEXCEPT;

/* Start copying blocks into `tier`, or out of the store, and return.
 *
 * Returns: null if out of memory: nothing was started. Free it with headrace_transfer_free(). */
headrace_transfer* headrace_store_put(headrace_store* store, const headrace_put_block* blocks,
                                      size_t block_count, size_t tier) HEADRACE_C_NOEXCEPT;
headrace_transfer* headrace_store_get(headrace_store* store, const headrace_get_block* blocks,
                                      size_t block_count) HEADRACE_C_NOEXCEPT;
/* Whether every block has ended. Never blocks. */
bool headrace_transfer_poll(const headrace_transfer* transfer) HEADRACE_C_NOEXCEPT;
/* Waits for at most `time_ns_max`; UINT64_MAX: no limit. Returns whether it has ended. */
bool headrace_transfer_wait(const headrace_transfer* transfer,
                            uint64_t time_ns_max) HEADRACE_C_NOEXCEPT;
/* How block `index` ended; if done, `byte_count`, which may be null, gets its length. RUNNING
 * before the transfer has ended, and for an index beyond the last. */
enum headrace_outcome headrace_transfer_outcome(const headrace_transfer* transfer, size_t index,
                                                size_t* byte_count) HEADRACE_C_NOEXCEPT;
/* Waits for it first. Null is ignored. */
void headrace_transfer_free(headrace_transfer* transfer) HEADRACE_C_NOEXCEPT;

/* A block, which stays as it is until headrace_view_end(), also beyond the end of the store. */
typedef struct headrace_view {
  const void* bytes;
  size_t byte_count;
  bool in_place; /* Memory of the process that serves the store; false: a copy. */
  void* keeper;  /* For headrace_view_end(). */
} headrace_view;
/* Waits for the block; in place without a message to the server. The checksum of a block in place
 * is not compared. If the outcome is not done, the view is empty. */
enum headrace_outcome headrace_store_view(headrace_store* store, const void* key, size_t key_bytes,
                                          headrace_view* view) HEADRACE_C_NOEXCEPT;
/* Ends the view, and empties it. */
void headrace_view_end(headrace_view* view) HEADRACE_C_NOEXCEPT;

/* Bytes of a block; 0 if there is no such block. */
size_t headrace_store_length(headrace_store* store, const void* key,
                             size_t key_bytes) HEADRACE_C_NOEXCEPT;
/* False if there is no such block; for unpin, also if it is not pinned. */
bool headrace_store_pin(headrace_store* store, const void* key,
                        size_t key_bytes) HEADRACE_C_NOEXCEPT;
bool headrace_store_unpin(headrace_store* store, const void* key,
                          size_t key_bytes) HEADRACE_C_NOEXCEPT;
/* Done, unknown_key, or io_failed if its disk keeps the block; so does the store then. */
enum headrace_outcome headrace_store_remove(headrace_store* store, const void* key,
                                            size_t key_bytes) HEADRACE_C_NOEXCEPT;
/* Removes every block; returns how many. */
size_t headrace_store_clear(headrace_store* store) HEADRACE_C_NOEXCEPT;
/* An eventfd, owned by the store, that counts transfers as they end. -1 if none can be opened. */
int headrace_store_descriptor(headrace_store* store) HEADRACE_C_NOEXCEPT;

#endif
