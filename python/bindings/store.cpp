// SPDX-License-Identifier: Apache-2.0
// The block store: stores, and batches in flight with their buffers. Waits run without the GIL.
#include "headrace/store/store.hpp"

#include <nanobind/ndarray.h>

#include <cstring>

#include "bindings.hpp"
#include "headrace/store/file.hpp"
#include "headrace/store/shared.hpp"

namespace headrace::python {
namespace {

using std::chrono::nanoseconds;

/// A batch with its buffers.
///
/// Threading: made and destroyed with the GIL held; the transfer is shared.
struct Batch {
  std::deque<Buffer> buffers;
  store::Transfer transfer;  ///< Last: its destructor waits for copies that use the buffers.
};

/// A store, and the batches whose Python handle was dropped while they ran.
///
/// Threading: shared. The fields are guarded by the GIL; calls that release it hold a separate
/// reference to the store.
class StoreHandle {
 public:
  StoreHandle(std::shared_ptr<EngineHandle> engine, std::shared_ptr<store::Store> made)
      : engine_(std::move(engine)), store_(std::move(made)) {}
  StoreHandle& operator=(StoreHandle&&) = delete;
  ~StoreHandle() { close(); }

  /// Fails: Failed (closed).
  [[nodiscard]] std::shared_ptr<store::Store> store() const {
    if (store_ != nullptr) return store_;
    throw Failed{Error{Code::closed, 0, "use a block store", "it was closed", "make another"}};
  }
  void adopt(std::shared_ptr<Batch> batch) { orphans_.push_back(std::move(batch)); }
  /// Destroys ended batches.
  void reap() {
    drop_if(orphans_, [](const std::shared_ptr<Batch>& orphan) { return orphan->transfer.poll(); });
  }
  /// Waits for running batches and destroys the store. Idempotent.
  void close() {
    std::shared_ptr<store::Store> store = std::move(store_);
    std::vector<std::shared_ptr<Batch>> orphans = std::exchange(orphans_, {});
    if (origin_.is_elsewhere()) {
      abandon(std::move(store));
      abandon(std::move(orphans));
      return;
    }
    {
      const GilReleased released;
      for (const std::shared_ptr<Batch>& each : orphans) each->transfer.wait();
      store.reset();
    }
  }

 private:
  const Origin origin_;
  std::shared_ptr<EngineHandle> engine_;
  std::shared_ptr<store::Store> store_;
  std::vector<std::shared_ptr<Batch>> orphans_;
};

/// Threading: shared. Its fields never change; it is made and destroyed with the GIL held.
class TransferHandle {
 public:
  TransferHandle(std::shared_ptr<StoreHandle> handle, std::shared_ptr<Batch> batch)
      : handle_(std::move(handle)), batch_(std::move(batch)) {}
  TransferHandle& operator=(TransferHandle&&) = delete;
  ~TransferHandle() {
    // Dropping the handle does not stop the copies, so the buffers must stay alive.
    if (!batch_->transfer.poll()) handle_->adopt(std::move(batch_));
  }
  [[nodiscard]] bool poll() const { return batch_->transfer.poll(); }
  /// Returns whether the batch has ended. `time_ns_max`: nullopt waits without limit.
  [[nodiscard]] bool wait(std::optional<std::int64_t> time_ns_max) const {
    if (poll()) return true;
    if (is_in_call()) {
      refuse_operation("a callback of a job may not wait for a transfer", "wait in another thread");
    }
    return wait_interruptibly(
        time_ns_max, [this](nanoseconds time_max) { return batch_->transfer.wait_for(time_max); });
  }
  [[nodiscard]] std::vector<std::string> outcomes() const {
    std::vector<std::string> names;
    for (const store::BlockEnd& end : batch_->transfer.ends()) {
      names.emplace_back(name(end.outcome));
    }
    return names;
  }
  [[nodiscard]] std::vector<std::uint32_t> byte_counts() const {
    std::vector<std::uint32_t> counts;
    for (const store::BlockEnd& end : batch_->transfer.ends()) counts.push_back(end.byte_count);
    return counts;
  }
  [[nodiscard]] bool all_done() const { return batch_->transfer.all_done(); }

 private:
  std::shared_ptr<StoreHandle> handle_;
  std::shared_ptr<Batch> batch_;
};

/// The fields of headrace.Tier: capacity, node, path, durability, deadline in ms, unwritten.
using TierTuple = std::tuple<std::uint64_t, std::optional<NodeId>, std::string, std::string,
                             std::uint64_t, std::optional<std::uint32_t>>;

/// Whether a handler of signals, such as that of Ctrl-C, has raised an exception.
bool is_interrupted() {
  const GilAcquired acquired;
  return PyErr_CheckSignals() != 0;
}

/// The store that `open(engine)`, which runs without the GIL, makes, or one that it serves.
template <typename Made, typename Open>
std::shared_ptr<StoreHandle> open_store(const std::shared_ptr<EngineHandle>& engine,
                                        const Open& open) {
  auto made = without_gil([&] { return open(engine->engine()); });
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  std::shared_ptr<Made> owner = value_of(std::move(made));
  if constexpr (std::is_same_v<Made, store::Store>) {
    return std::make_shared<StoreHandle>(engine, std::move(owner));
  } else {
    return std::make_shared<StoreHandle>(engine,
                                         std::shared_ptr<store::Store>(owner, &owner->served()));
  }
}

std::shared_ptr<StoreHandle> make_store(const std::shared_ptr<EngineHandle>& engine,
                                        std::uint64_t block_bytes,
                                        const std::vector<TierTuple>& tiers, bool checksums,
                                        std::uint32_t promote_after, std::uint64_t inline_max,
                                        const std::string& share, std::uint32_t clients_max,
                                        std::optional<std::uint32_t> group,
                                        std::uint64_t replace_within_ms) {
  store::StoreOptions options{.block_bytes = Bytes(block_bytes),
                              .checksums = checksums,
                              .promote_after = promote_after,
                              .inline_max = Bytes(inline_max)};
  for (const auto& [capacity, node, path, durability, deadline_ms, unwritten] : tiers) {
    store::TierOptions& tier = options.tiers.emplace_back();
    tier.capacity = Bytes(capacity);
    tier.node = node;
    tier.path = path;
    tier.deadline = std::chrono::milliseconds(deadline_ms);
    tier.unwritten_max = unwritten;
    tier.durability = value_of(parse_name<store::Durability>(durability, "durability"));
  }
  if (share.empty()) {
    return open_store<store::Store>(
        engine, [&](engine::Engine& with) { return store::Store::make(with, std::move(options)); });
  }
  const store::ServeOptions serving{.socket = share,
                                    .store = std::move(options),
                                    .clients_max = clients_max,
                                    .group = group,
                                    .replace_within = std::chrono::milliseconds(replace_within_ms),
                                    .is_interrupted = is_interrupted};
  return open_store<store::Server>(
      engine, [&](engine::Engine& with) { return store::Server::make(with, serving); });
}

std::shared_ptr<StoreHandle> connect(const std::shared_ptr<EngineHandle>& engine,
                                     const std::string& socket, std::uint64_t deadline_ms) {
  const store::ConnectOptions options{.deadline = std::chrono::milliseconds(deadline_ms),
                                      .is_interrupted = is_interrupted};
  return open_store<store::Store>(
      engine, [&](engine::Engine& with) { return store::connect(with, socket, options); });
}

using List = nb::typed<nb::list, nb::any>;
using Flat = nb::typed<nb::callable, nb::any(nb::any)>;

/// The bytes of a bytes object, or the UTF-8 of a str; the object owns them.
std::string_view key_of(nb::handle object) {
  if (PyBytes_Check(object.ptr())) {
    return {PyBytes_AsString(object.ptr()), nb::len(object)};
  }
  if (!PyUnicode_Check(object.ptr())) {
    throw Failed{Error{
        Code::invalid_argument, 0, "use a key",
        nb::str("an object of type {} is not a key").format(object.type().attr("__name__")).c_str(),
        "pass bytes or a str"}};
  }
  Py_ssize_t length = 0;
  const char* const first = PyUnicode_AsUTF8AndSize(object.ptr(), &length);
  if (first == nullptr) throw nb::python_error();
  return {first, static_cast<std::size_t>(length)};
}

/// The outcome, and the bytes, which keep the block.
std::tuple<std::string, nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>, nb::c_contig>> view(
    const StoreHandle& handle, nb::handle key) {
  const std::shared_ptr<store::Store> store = handle.store();
  const std::string_view text = key_of(key);
  const store::BlockView found = without_gil([&] { return store->view(text); });
  const nb::capsule owner(new store::BlockView(found), [](void* pointer) noexcept {
    const std::unique_ptr<store::BlockView> ended(static_cast<store::BlockView*>(pointer));
  });
  return {std::string(name(found.outcome)), {found.bytes.data(), {found.bytes.size()}, owner}};
}

/// Whether the export of an object's buffer protects its memory, which is contiguous and has no
/// references to objects.
bool is_plain(nb::handle object, Buffer::Use use) {
  PyObject* const it = object.ptr();
  if (PyByteArray_CheckExact(it) || (PyBytes_CheckExact(it) && use == Buffer::Use::read)) {
    return true;
  }
  static const nb::handle array =
      nb::object(nb::module_::import_("numpy").attr("ndarray")).release();
  static const nb::handle base_name = nb::str("base").release();
  const auto is_array = [](nb::handle each) { return each.type().is(array); };
  if (is_array(object)) {
    const nb::object base = nb::getattr(object, base_name);
    if (!base.is_none() && !(is_array(base) && nb::getattr(base, base_name).is_none())) {
      return false;
    }
  } else if (!PyMemoryView_Check(it)) {
    return false;
  }
  Py_buffer view;
  const int writable = use == Buffer::Use::write ? PyBUF_WRITABLE : 0;
  if (PyObject_GetBuffer(it, &view, PyBUF_ND | PyBUF_FORMAT | writable) != 0) {
    PyErr_Clear();
    return false;
  }
  const bool has_objects = view.format != nullptr && std::strchr(view.format, 'O') != nullptr;
  const bool is_plain = view.len != 0 && !has_objects;
  PyBuffer_Release(&view);
  return is_plain;
}

/// Holds the buffers of a batch, those that are not plain as `flat(buffer)`.
template <typename Block>
std::vector<Block> hold(Batch& batch, const List& keys, const List& buffers, const Flat& flat) {
  constexpr bool kIsPut = std::is_same_v<Block, store::PutBlock>;
  constexpr Buffer::Use kUse = kIsPut ? Buffer::Use::read : Buffer::Use::write;
  if (keys.size() != buffers.size()) {
    refuse_operation("there are not as many keys as blocks", "pass one buffer for each key");
  }
  std::vector<Block> blocks;
  blocks.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const nb::object object = buffers[i];
    const Buffer& buffer =
        batch.buffers.emplace_back(is_plain(object, kUse) ? object : flat(object), kUse);
    if constexpr (kIsPut) blocks.push_back({key_of(keys[i]), buffer.bytes()});
    if constexpr (!kIsPut) blocks.push_back({key_of(keys[i]), buffer.writable_bytes()});
  }
  return blocks;
}

/// `submit(store)` runs without the GIL.
template <typename Submit>
std::shared_ptr<TransferHandle> start(const std::shared_ptr<StoreHandle>& handle,
                                      std::shared_ptr<Batch> batch, const Submit& submit) {
  const std::shared_ptr<store::Store> store = handle->store();
  without_gil([&] { batch->transfer = submit(*store); });
  return std::make_shared<TransferHandle>(handle, std::move(batch));
}

std::shared_ptr<TransferHandle> put(const std::shared_ptr<StoreHandle>& handle, const List& keys,
                                    const List& sources, std::size_t tier, const Flat& flat) {
  handle->reap();
  auto batch = std::make_shared<Batch>();
  const auto blocks = hold<store::PutBlock>(*batch, keys, sources, flat);
  return start(handle, batch, [&](store::Store& store) { return store.put(blocks, tier); });
}

std::shared_ptr<TransferHandle> get(const std::shared_ptr<StoreHandle>& handle, const List& keys,
                                    const List& targets, const Flat& flat) {
  handle->reap();
  auto batch = std::make_shared<Batch>();
  const auto blocks = hold<store::GetBlock>(*batch, keys, targets, flat);
  return start(handle, batch, [&](store::Store& store) { return store.get(blocks); });
}

std::shared_ptr<TransferHandle> flush(const std::shared_ptr<StoreHandle>& handle) {
  return start(handle, std::make_shared<Batch>(),
               [](store::Store& store) { return store.flush(); });
}

std::vector<nb::bytes> keys(const StoreHandle& handle) {
  std::vector<nb::bytes> keys;
  const std::shared_ptr<store::Store> store = handle.store();
  for (const std::string& key : without_gil([&] { return store->keys(); }))
    keys.emplace_back(key.data(), key.size());
  return keys;
}

nb::dict statistics(const StoreHandle& handle) {
  const std::shared_ptr<store::Store> store = handle.store();
  const store::StoreStatistics known = without_gil([&] { return store->statistics(); });
  using S = store::StoreStatistics;
  Fields made = members_of<&S::blocks, &S::misses, &S::dropped, &S::corrupt, &S::failed,
                           &S::bytes_in, &S::bytes_out>(known);
  using T = store::TierStatistics;
  nb::list tiers;
  for (const T& each : known.tiers) {
    tiers.append(members_of<&T::capacity_blocks, &T::blocks, &T::hits, &T::puts, &T::evictions,
                            &T::promotions, &T::demotions, &T::recovered, &T::dropped_torn,
                            &T::blocks_lost, &T::is_healthy, &T::access>(each));
  }
  made["tiers"] = tiers;
  nb::list clients;
  using C = store::ClientStatistics;
  for (const C& each : known.clients) {
    clients.append(
        members_of<&C::process, &C::requests, &C::reads_in_place, &C::leases, &C::pins>(each));
  }
  made["clients"] = clients;
  return made;
}

nb::dict inspect_file(const std::string& path, bool verifies) {
  const store::FileContents contents =
      value_of(without_gil([&] { return store::inspect_file(path, verifies); }));
  nb::list entries;
  for (const store::FileEntry& each : contents.entries) {
    entries.append(nb::make_tuple(nb::bytes(each.key.data(), each.key.size()), each.byte_count,
                                  std::string(name(each.state))));
  }
  using F = store::FileContents;
  Fields made = members_of<&F::block_bytes, &F::capacity_blocks, &F::with_checksum>(contents);
  made["entries"] = entries;
  return made;
}

/// A call of `method` with a key.
template <typename Method>
auto with_key(Method method) {
  return [method](const StoreHandle& handle, nb::handle key) {
    const std::shared_ptr<store::Store> store = handle.store();
    const std::string_view text = key_of(key);
    return without_gil([&] { return (*store.*method)(text); });
  };
}

}  // namespace

void bind_store(nb::module_& module) {
  nb::class_<TransferHandle>(module, "StoreTransfer")
      .def("poll", &TransferHandle::poll)
      .def("wait", &TransferHandle::wait, "time_ns_max"_a.none())
      .def("outcomes", &TransferHandle::outcomes, "Of a transfer that has ended.")
      .def("byte_counts", &TransferHandle::byte_counts, "Of a transfer that has ended.")
      .def("all_done", &TransferHandle::all_done);

  nb::class_<StoreHandle>(module, "BlockStore")
      .def_static("make", &make_store, "engine"_a, nb::kw_only(), "block_bytes"_a, "tiers"_a,
                  "checksums"_a, "promote_after"_a, "inline_max"_a, "share"_a, "clients_max"_a,
                  "group"_a.none(), "replace_within_ms"_a)
      .def_static("connect", &connect, "engine"_a, "socket"_a, "deadline_ms"_a)
      .def("view", &view, "key"_a.none())
      .def("put", &put, "keys"_a, "sources"_a, "tier"_a, "flat"_a)
      .def("get", &get, "keys"_a, "targets"_a, "flat"_a)
      .def("flush", &flush)
      .def("length", with_key(&store::Store::length), "key"_a.none())
      .def("pin", with_key(&store::Store::pin), "key"_a.none())
      .def("unpin", with_key(&store::Store::unpin), "key"_a.none())
      .def(
          "remove",
          [](const StoreHandle& handle, nb::handle key) {
            return std::string(name(with_key(&store::Store::remove)(handle, key)));
          },
          "key"_a.none())
      .def("clear",
           [](const StoreHandle& handle) {
             const std::shared_ptr<store::Store> store = handle.store();
             return without_gil([&] { return store->clear(); });
           })
      .def("keys", &keys)
      .def("statistics", &statistics, nb::sig("def statistics(self) -> dict[str, typing.Any]"))
      .def("descriptor",
           [](const StoreHandle& handle) { return value_of(handle.store()->event_descriptor()); })
      .def("reap", &StoreHandle::reap)
      .def("close", &StoreHandle::close);
  module.def("inspect_file", &inspect_file, "path"_a, "verifies"_a,
             nb::sig("def inspect_file(path: str, verifies: bool) -> dict[str, typing.Any]"));
  module.def(
      "explain_outcome",
      [](const std::string& text) {
        const std::optional<store::Outcome> outcome = find_name<store::Outcome>(text);
        return std::string(outcome ? explain(*outcome) : "");
      },
      "outcome"_a);
}

}  // namespace headrace::python
