// SPDX-License-Identifier: Apache-2.0
// A store that the processes of a host share: one serves it, the others connect and use it as their
// own. Clients read blocks in the first tier, which is memory, without a message to the server.
//
// Specification: as in store.hpp, except that a client's get takes effect between its submission
//   and its end, and that its flush has one end. A client's on_done may only start transfers: its
//   thread takes the server's answers, for which other calls wait.
// Damage: clients cannot write to the memory of blocks. Whatever a client does, it loses at worst
//   its own requests and the blocks that it may replace or remove.
// Leases: a client that reads blocks in place keeps their memory until it ends. All clients can
//   keep at most half of the first tier, each an equal part of that; a block beyond is copied. As
//   many may be pinned; a pin beyond fails. The end of a client ends its pins.
// Requests: the server takes a few of each client in turn, and holds a bounded number of each. One
//   that removes from a file waits for the disk, and the next ones with it.
// Death: when the server ends, it first answers what it has taken, unless it is killed. Transfers
//   that it has not answered end as `closed`: puts may have taken effect. Later ones end so, too,
//   until another server has the socket, to which the client then connects. Until then no block is
//   found. Pins are gone, views stay. In a child of fork() a client is closed.
// Not for: processes that do not trust the server.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"
#include "headrace/engine/engine.hpp"
#include "headrace/store/store.hpp"

namespace headrace::store {

/// Asked after each signal during a wait, on the thread that waits; if true, the wait ends.
using IsInterrupted = bool();

struct ServeOptions {
  std::string socket;  ///< Path. Its permissions say who may connect: at first only this user.
  StoreOptions store;  ///< The first tier must be memory on any node.
  std::uint32_t clients_max = 16;                     ///< At a time, up to 64.
  std::optional<std::uint32_t> group = std::nullopt;  ///< Its members may connect as well.
  /// Not 0: the process that serves at the socket, of any version, is ended by SIGTERM, and has
  /// this time for it. Clients connect to this server by themselves.
  std::chrono::milliseconds replace_within{0};
  IsInterrupted* is_interrupted = nullptr;  ///< Null: the wait for that process goes on.
};

/// Serves a store until its destruction, in a thread of its own. Borrows the engine.
///
/// Threading: shared, except for destruction.
class HEADRACE_API Server {
 public:
  /// Fails: as Store::make; capacity_exceeded if another server has the socket, or does not end.
  [[nodiscard]] static Result<std::unique_ptr<Server>> make(engine::Engine& engine,
                                                            const ServeOptions& options);
  Server& operator=(Server&&) = delete;
  virtual ~Server() = default;

  /// The store itself. Its views are copies.
  [[nodiscard]] virtual Store& served() const = 0;

 protected:
  Server() = default;
};

struct ConnectOptions {
  /// A request that the server has not answered after this time, or a quarter more, ends as
  /// timed_out. A put may still take effect.
  std::chrono::milliseconds deadline = std::chrono::seconds(30);
  IsInterrupted* is_interrupted = nullptr;  ///< Null: the wait for the server goes on.
};

/// Connects to the server at `socket`, which is trusted. Borrows the engine. Runs one thread.
///
/// Fails: not_found if no server is there; permission_denied; capacity_exceeded if the server has
///        clients_max; version_mismatch; out_of_memory, io_failed; unsupported.
[[nodiscard]] HEADRACE_API Result<std::unique_ptr<Store>> connect(
    engine::Engine& engine, const std::string& socket, const ConnectOptions& options = {});

}  // namespace headrace::store
