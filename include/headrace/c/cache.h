/* SPDX-License-Identifier: Apache-2.0
 * The cache: part of headrace.h, which includes this file. */
#ifndef HEADRACE_C_CACHE_H
#define HEADRACE_C_CACHE_H
#ifndef HEADRACE_H
#error "include headrace.h"
#endif

/* Copies of regions on the nodes that will read them, as in headrace/cache/cache.hpp. A region is
 * identified by its address. The cache is not coherent: after changing or before freeing a source,
 * call headrace_cache_invalidate(). Threading: shared. */
typedef struct headrace_cache headrace_cache;

/* Where copies go. */
enum headrace_placement HEADRACE_C_ENUM {
  HEADRACE_PLACEMENT_FASTEST, /* The best node that is faster than the caller's own, if any. */
  HEADRACE_PLACEMENT_LOCAL,   /* The caller's node. */
  HEADRACE_PLACEMENT_NODE     /* `node`. */
};

typedef struct headrace_cache_options {
  size_t struct_size;         /* sizeof(headrace_cache_options). */
  uint64_t capacity_per_node; /* Bytes of copies; when a node is full, unused ones are evicted. 0:
                               * no limit but the node's memory. */
  enum headrace_placement placement;
  uint32_t node;
  enum headrace_policy policy; /* Chooses the movers. */
  bool lru;                    /* Evict by lru instead of s3_fifo. */
  bool huge_pages;             /* For copies of at least a huge page. */
} headrace_cache_options;

/* A handle on an accessed region, in memory of the caller, who must not move or copy it. Threading:
 * one thread at a time. */
typedef struct headrace_entry {
  uint64_t opaque[4];
} headrace_entry;

/* `options` and `error` may be null. The engine outlives the cache.
 *
 * Returns: null on failure, with the reason in `error`. Free it with headrace_cache_free(). */
headrace_cache* headrace_cache_make(headrace_engine* engine, const headrace_cache_options* options,
                                    headrace_error* error) HEADRACE_C_NOEXCEPT;
/* Entries stay valid and are still released one by one. Null is ignored. */
void headrace_cache_free(headrace_cache* cache) HEADRACE_C_NOEXCEPT;
/* Stores a handle on the region in `entry`, and starts the move of a copy unless the cache has one;
 * never blocks on a move. The source must not be changed until the entry is ready, nor freed before
 * it is released. Without room, memory or mover the entry is the source.
 *
 * Returns: false if out of memory; `entry` is then not a handle. Release it with
 *          headrace_entry_release(). */
bool headrace_cache_access(headrace_cache* cache, const void* source, size_t byte_count,
                           headrace_entry* entry) HEADRACE_C_NOEXCEPT;
/* Waits at most `time_ns_max` for the end of the move; UINT64_MAX: no limit, 0: a poll. Returns
 * whether it has ended. */
bool headrace_entry_wait(const headrace_entry* entry, uint64_t time_ns_max) HEADRACE_C_NOEXCEPT;
/* The region: its copy once the move is done, else the source. */
const void* headrace_entry_data(const headrace_entry* entry) HEADRACE_C_NOEXCEPT;
/* Whether headrace_entry_data() is a copy. */
bool headrace_entry_cached(const headrace_entry* entry) HEADRACE_C_NOEXCEPT;
/* The copy is freed once it has left the cache and its last handle is released. */
void headrace_entry_release(headrace_entry* entry) HEADRACE_C_NOEXCEPT;
/* Drops all entries without a handle. False if out of memory: nothing was dropped. */
bool headrace_cache_flush_entries(headrace_cache* cache) HEADRACE_C_NOEXCEPT;
/* Drops every entry that overlaps the region; handles keep their copies. Returns how many. */
size_t headrace_cache_invalidate(headrace_cache* cache, const void* source,
                                 size_t byte_count) HEADRACE_C_NOEXCEPT;

#endif
