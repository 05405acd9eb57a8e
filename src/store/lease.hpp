// SPDX-License-Identifier: Apache-2.0
// The lock-free part of a shared store: how a client reads a block in place while the server may
// reuse its memory.
//
// Agents: the *server* (under the mutex of the store), and a *reader* for each word of leases, in
// any process. Each may be killed between two instructions. The server trusts no word of leases: at
// worst it does not reuse one cell. Versions are never used again; 0 stands for none.
//
// The reader stores its lease and then reads the version again; the server hides the version and
// then reads the leases. All four are sequentially consistent: either the reader sees that the
// block is hidden, and does not read it, or the server sees the lease, and does not reuse the cell.
// Model: tests/model/store/lease_model.cpp.
#pragma once

#include <cstdint>

#include "headrace/base/atomic.hpp"

namespace headrace::store::detail {

/// Reader: whether it may read the cell until end_lease(). `seen` was read from `version`, and what
/// was read of the cell since belongs to it.
[[nodiscard]] inline bool begin_lease(Atomic<std::uint32_t>& lease, std::uint32_t cell,
                                      const Atomic<std::uint64_t>& version, std::uint64_t seen) {
  lease.exchange_seq_cst(cell);  // seq_cst: before the version is read; see above.
  if (version.load_seq_cst() == seen) return true;
  lease.store_relaxed(0);  // Nothing was read under it.
  return false;
}

inline void end_lease(Atomic<std::uint32_t>& lease) {
  // edge: shared-lease-ended (release)
  lease.store_release(0);
}

/// Server: what follows reads the leases.
inline void hide(Atomic<std::uint64_t>& version) {
  version.exchange_seq_cst(0);  // seq_cst: before the leases are read; see above.
}

/// Server: whether the reader may read the cell.
[[nodiscard]] inline bool is_leased(const Atomic<std::uint32_t>& lease, std::uint32_t cell) {
  // edge: shared-lease-ended (acquire)
  return lease.load_seq_cst() == cell;
}

/// Server: the cell and what describes it are written.
inline void show(Atomic<std::uint64_t>& version, std::uint64_t fresh) {
  // edge: shared-block-shown (release)
  version.store_release(fresh);
}

/// Reader: 0 if the cell has no block now.
[[nodiscard]] inline std::uint64_t look(const Atomic<std::uint64_t>& version) {
  // edge: shared-block-shown (acquire)
  return version.load_acquire();
}

}  // namespace headrace::store::detail
