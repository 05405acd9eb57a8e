// SPDX-License-Identifier: Apache-2.0
// The leases of a shared store in a model checker: the code of src/store/lease.hpp, in the
// interleavings that Search selects. The bytes of a cell are rl::var here, whose data races are
// reported.
#include <gtest/gtest.h>

#include "explore.hpp"
#include "lease.hpp"

namespace headrace::store::detail {
namespace {

using test::explore;
using test::Search;

constexpr std::uint32_t kCell = 1;

template <unsigned kReaders>
struct ACell {
  void before() { put(1); }
  /// The cell holds what it did when its version was read.
  void read(unsigned reader) {
    const std::uint64_t seen = look(version);
    if (seen == 0 || !begin_lease(leases[reader], kCell, version, seen)) return;
    RL_ASSERT(bytes($) == seen);
    end_lease(leases[reader]);
  }
  void put(std::uint64_t number) {
    bytes($) = number;
    show(version, number);
  }
  void replace(std::uint64_t number) {
    hide(version);
    for (unsigned i = 0; i < kReaders; ++i) {
      while (is_leased(leases[i], kCell)) rl::yield(1, $);
    }
    put(number);
  }

  Atomic<std::uint64_t> version;
  Atomic<std::uint32_t> leases[kReaders];
  rl::var<std::uint64_t> bytes;
};

struct ARead : rl::test_suite<ARead, 2>, ACell<1> {
  void before() { ACell::before(); }
  void thread(unsigned index) {
    if (index == 0) {
      replace(2);
      replace(3);
    } else {
      read(0);
      read(0);
    }
  }
};

struct TwoReaders : rl::test_suite<TwoReaders, 3>, ACell<2> {
  void before() { ACell::before(); }
  void thread(unsigned index) {
    if (index == 0) {
      replace(2);
    } else {
      read(index - 1);
    }
  }
};

/// The reader ends without giving back its lease.
struct AReaderIsKilled : rl::test_suite<AReaderIsKilled, 2>, ACell<1> {
  void before() { ACell::before(); }
  void thread(unsigned index) {
    if (index == 0) {
      hide(version);
      // The cell is not reused while the word is looked at.
      if (!is_leased(leases[0], kCell)) put(2);
    } else {
      const std::uint64_t seen = look(version);
      if (seen != 0 && begin_lease(leases[0], kCell, version, seen)) RL_ASSERT(bytes($) == seen);
    }
  }
};

TEST(SharedLeaseModel, ARead) {
  explore<ARead>("two reads in place, two replacements", Search::full);
}
TEST(SharedLeaseModel, TwoReaders) {
  explore<TwoReaders>("two readers in place, a replacement", Search::bounded);
}
TEST(SharedLeaseModel, AReaderIsKilled) {
  explore<AReaderIsKilled>("a reader in place killed with a lease", Search::full);
}

}  // namespace
}  // namespace headrace::store::detail
