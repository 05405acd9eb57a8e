// SPDX-License-Identifier: Apache-2.0
// Tree: the files of the emulated machine by path, with what reading and writing them does. Knows
// neither FUSE nor DSA.
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
  attribute,  ///< One value; a write replaces the whole of it.
  binary,     ///< Bytes that are read and written at any offset.
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
  std::uint64_t number = 0;             ///< Of the inode; given by Tree.
  std::vector<std::string> children{};  ///< Names, in the order they were added.
};

using Show = std::function<std::string()>;
using Store = std::function<int(std::string_view)>;
/// A value that is read by one function and written by the other, with the mode of what there is.
[[nodiscard]] Node attribute(Show show, Store store = {});
/// A value, with its line end, that stays.
[[nodiscard]] Node constant(std::string text);
[[nodiscard]] Node link(std::string target, std::function<bool()> present = {});

/// Threading: built by one thread, then immutable; the functions of the nodes are called by any.
class Tree {
 public:
  Tree();
  /// Adds a node and the directories that lead to it. Precondition: `path` begins with a slash and
  /// is not there yet.
  void add(const std::string& path, Node node);
  /// Null if there is none, or it is not present now.
  [[nodiscard]] const Node* find(std::string_view path) const;
  /// Names of what is in the directory `path` now.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;

 private:
  Node& directory(const std::string& path);

  std::map<std::string, Node, std::less<>> nodes_;
};

}  // namespace headrace::emu
