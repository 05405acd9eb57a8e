// SPDX-License-Identifier: Apache-2.0
// Tree: the files of the emulated machine by path, and the effect of reading and writing them.
// Independent of FUSE and DSA.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "headrace/base/units.hpp"

namespace headrace::emu {

enum class NodeKind : std::uint8_t {
  directory,
  attribute,  ///< One value; a write replaces all of it.
  binary,     ///< Bytes, readable and writable at any offset.
  link,
  portal,  ///< /dev/dsa/wqD.Q: one page.
  trace,   ///< Lines are appended.
};

struct Node {
  NodeKind kind = NodeKind::directory;
  std::uint32_t permissions = 0755;
  std::string target{};                             ///< link.
  std::function<std::string()> show{};              ///< attribute; empty: cannot be read.
  std::function<int(std::string_view)> store{};     ///< attribute; 0 or an errno.
  std::function<std::string(bool root)> content{};  ///< binary.
  /// binary.
  std::function<void(std::size_t offset, std::string_view bytes)> patch{};
  std::function<bool()> present{};      ///< Empty: always there.
  DeviceId device{};                    ///< portal.
  QueueId queue{};                      ///< portal.
  std::uint64_t number = 0;             ///< Inode number; assigned by Tree.
  std::vector<std::string> children{};  ///< Names, in order of insertion.
};

using Show = std::function<std::string()>;
using Store = std::function<int(std::string_view)>;
/// A value read by one function and written by the other; the mode follows from which are given.
[[nodiscard]] Node attribute(Show show, Store store = {});
/// A constant value, with its line end.
[[nodiscard]] Node constant(std::string text);
[[nodiscard]] Node link(std::string target, std::function<bool()> present = {});

/// Threading: built by one thread, then immutable; the functions of the nodes are called by any.
class Tree {
 public:
  Tree();
  /// Adds a node and its parent directories. Precondition: `path` begins with a slash and does not
  /// exist yet.
  void add(const std::string& path, Node node);
  /// Null if it does not exist or is not present now.
  [[nodiscard]] const Node* find(std::string_view path) const;
  /// Names of the nodes now present in the directory `path`.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;

 private:
  Node& directory(const std::string& path);

  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace headrace::emu
