// SPDX-License-Identifier: Apache-2.0
// Persistent memory and its ring of headrace.h, implemented in C++.
#include <string>

#include "common.hpp"
#include "headrace/pmem/mapping.hpp"
#include "headrace/pmem/medium.hpp"
#include "headrace/pmem/ring.hpp"

namespace {

using headrace::fail;
using headrace::Result;
using headrace::c::make_for_c;
using headrace::c::object_of;
using headrace::c::succeeds;
using headrace::pmem::Consumer;
using headrace::pmem::Mapping;
using headrace::pmem::Medium;
using headrace::pmem::Producer;
using headrace::pmem::RingOptions;

static_assert(HEADRACE_ENQUEUE_FORKED == static_cast<int>(headrace::pmem::Enqueue::forked));
static_assert(HEADRACE_NEXT_FORKED == static_cast<int>(headrace::pmem::Next::forked));

/// What `attach` returns, on the heap.
template <typename Object>
Result<std::unique_ptr<Object>> boxed(const char* path,
                                      Result<Object> (*attach)(const std::string& path)) {
  HEADRACE_TAKE(made, attach(path == nullptr ? "" : path));
  return std::make_unique<Object>(std::move(*made));
}

/// Stores by `store` and waits until it is durable.
template <typename Store>
bool durably(headrace_pmem* pmem, const Store& store) {
  const auto& mapping = object_of<Mapping>(pmem);
  Medium medium = mapping.medium();
  store(medium);
  medium.drain();
  return mapping.fault() == headrace::pmem::Fault::none;
}

}  // namespace

headrace_pmem* headrace_pmem_map(const char* path, headrace_error* error) noexcept {
  return make_for_c<headrace_pmem>("map a file", error, [&] {
    return boxed<Mapping>(path, [](const std::string& name) { return Mapping::map(name); });
  });
}

void headrace_pmem_unmap(headrace_pmem* pmem) noexcept {
  delete reinterpret_cast<Mapping*>(pmem);
}

void* headrace_pmem_data(const headrace_pmem* pmem) noexcept {
  return object_of<Mapping>(pmem).bytes().data();
}

size_t headrace_pmem_bytes(const headrace_pmem* pmem) noexcept {
  return object_of<Mapping>(pmem).bytes().size();
}

bool headrace_pmem_copy(headrace_pmem* pmem, void* target, const void* source,
                        size_t byte_count) noexcept {
  return durably(pmem, [&](Medium& medium) {
    medium.copy(static_cast<std::byte*>(target),
                {static_cast<const std::byte*>(source), byte_count});
  });
}

bool headrace_pmem_set(headrace_pmem* pmem, void* target, int value, size_t byte_count) noexcept {
  return durably(pmem, [&](Medium& medium) {
    medium.fill(static_cast<std::byte*>(target), static_cast<std::byte>(value), byte_count);
  });
}

bool headrace_pmem_persist(headrace_pmem* pmem, const void* begin, size_t byte_count) noexcept {
  return durably(pmem, [&](Medium& medium) { medium.flush(begin, byte_count); });
}

bool headrace_ring_make(const char* path, uint64_t capacity_bytes, headrace_error* error) noexcept {
  return succeeds("make a ring", error, [&] {
    RingOptions options;
    options.capacity = headrace::Bytes(capacity_bytes);
    return headrace::pmem::make_ring(path == nullptr ? "" : path, options);
  });
}

headrace_ring_producer* headrace_ring_produce(const char* path, headrace_error* error) noexcept {
  return make_for_c<headrace_ring_producer>("attach to a ring", error, [&] {
    return boxed<Producer>(path, [](const std::string& name) { return Producer::attach(name); });
  });
}

headrace_ring_consumer* headrace_ring_consume(const char* path, headrace_error* error) noexcept {
  return make_for_c<headrace_ring_consumer>("attach to a ring", error, [&] {
    return boxed<Consumer>(path, [](const std::string& name) { return Consumer::attach(name); });
  });
}

void headrace_ring_producer_free(headrace_ring_producer* producer) noexcept {
  delete reinterpret_cast<Producer*>(producer);
}

void headrace_ring_consumer_free(headrace_ring_consumer* consumer) noexcept {
  delete reinterpret_cast<Consumer*>(consumer);
}

enum headrace_enqueue headrace_ring_enqueue(headrace_ring_producer* producer, const void* entry,
                                            size_t byte_count) noexcept {
  return static_cast<headrace_enqueue>(
      object_of<Producer>(producer).enqueue({static_cast<const std::byte*>(entry), byte_count}));
}

enum headrace_next headrace_ring_next(headrace_ring_consumer* consumer, const void** entry,
                                      size_t* byte_count) noexcept {
  headrace::pmem::Entry lent;
  const headrace::pmem::Next answer = object_of<Consumer>(consumer).next(lent);
  if (answer == headrace::pmem::Next::entry) {
    *entry = lent.bytes.data();
    *byte_count = lent.bytes.size();
  }
  return static_cast<headrace_next>(answer);
}

void headrace_ring_acknowledge(headrace_ring_consumer* consumer) noexcept {
  object_of<Consumer>(consumer).acknowledge();
}
