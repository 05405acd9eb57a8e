// SPDX-License-Identifier: Apache-2.0
// A library that submits from its constructor, before main and before many other libraries are
// initialised, and replaces memcpy by the device, as DTO does. Preloaded after ours, or loaded
// later.
#include <pthread.h>

#include "client.hpp"

namespace {

void* portal = nullptr;
unsigned offloaded = 0;

__attribute__((constructor)) void begin() {
  portal = hostile::open_portal("wq0.0");
  hostile::expect_works(portal);
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) int hostile_library_run() {
  hostile::expect_works(portal);
  return 1;
}

__attribute__((visibility("default"))) unsigned hostile_offloaded_count() {
  return __atomic_load_n(&offloaded, __ATOMIC_RELAXED);
}

#ifdef HOSTILE_MEMCPY
// Every call, however short, from whatever thread; a lock makes any re-entry a deadlock.
__attribute__((visibility("default"))) void* memcpy(void* target, const void* source,
                                                    std::size_t byte_count) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  if (portal == nullptr || byte_count == 0) {
    void* to = target;
    asm volatile("rep movsb" : "+D"(to), "+S"(source), "+c"(byte_count) : : "memory");
    return target;
  }
  pthread_mutex_lock(&mutex);
  hostile::Record record{};
  hostile::submit(portal,
                  hostile::move(record, target, source, static_cast<std::uint32_t>(byte_count)));
  EXPECT(hostile::wait(record) == DSA_COMP_SUCCESS);
  __atomic_fetch_add(&offloaded, 1, __ATOMIC_RELAXED);
  pthread_mutex_unlock(&mutex);
  return target;
}
#endif
}
