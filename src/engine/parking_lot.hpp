// SPDX-License-Identifier: Apache-2.0
// Parking lot: where threads sleep until something at an address changes (after WTF::ParkingLot).
// Mutex and condition belong to the process and not to the object waited for, so that the thread
// that makes the change may wake sleepers after the object is gone. Not for: the change itself.
//
// The protocol. The object has an atomic word.
//   sleeper: locks the bucket; makes known in the word that it sleeps, unless the wait is over;
//            waits on the condition until the wait is over.
//   waker:   ends the wait by one exchange of the word, its last touch of the object; if a sleeper
//            made itself known, calls unpark_all(address).
// No wake-up is lost: a sleeper that the exchange saw holds the bucket from before it made itself
// known until it sleeps, so unpark_all, which takes the bucket, comes after.
#pragma once

#include "headrace/base/mutex.hpp"

namespace headrace::engine::detail {

/// Sleepers of several addresses may share a bucket: a thread that wakes checks its own word.
///
/// Threading: shared.
struct alignas(64) ParkingBucket {
  Mutex mutex;
  Condition condition;
};

/// The bucket of `address`. Lives until the process ends, later than any static object.
[[nodiscard]] ParkingBucket& parking_bucket(const void* address) noexcept;

/// Wakes every thread that sleeps for `address`, which is not dereferenced and may be gone.
void unpark_all(const void* address) noexcept;

}  // namespace headrace::engine::detail
