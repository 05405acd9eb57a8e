// SPDX-License-Identifier: Apache-2.0
#include "launch/emulator/tree.hpp"

#include <utility>

#include "headrace/base/check.hpp"

namespace headrace::emu {

Node attribute(Show show, Store store) {
  const std::uint32_t permissions = (show ? 0444U : 0U) | (store ? 0200U : 0U);
  return {.kind = NodeKind::attribute,
          .permissions = permissions,
          .show = std::move(show),
          .store = std::move(store)};
}

Node constant(std::string text) {
  return attribute([text = std::move(text) + "\n"] { return text; });
}

Node link(std::string target, std::function<bool()> present) {
  return {.kind = NodeKind::link,
          .permissions = 0777,
          .target = std::move(target),
          .present = std::move(present)};
}

Tree::Tree() {
  nodes_["/"].number = 1;
}

Node& Tree::directory(const std::string& path) {
  if (path.empty()) return nodes_["/"];
  if (const auto found = nodes_.find(path); found != nodes_.end()) return found->second;
  const std::size_t slash = path.rfind('/');
  directory(path.substr(0, slash)).children.push_back(path.substr(slash + 1));
  Node& made = nodes_[path];
  made.number = nodes_.size();
  return made;
}

void Tree::add(const std::string& path, Node node) {
  HEADRACE_CHECK(nodes_.find(path) == nodes_.end(), "each file of the tree is added once", path);
  Node& place = directory(path);
  node.number = place.number;
  place = std::move(node);
}

const Node* Tree::find(std::string_view path) const {
  const auto found = nodes_.find(path);
  if (found == nodes_.end()) return nullptr;
  const Node& node = found->second;
  return !node.present || node.present() ? &node : nullptr;
}

std::vector<std::string> Tree::list(const std::string& path) const {
  std::vector<std::string> names;
  const Node* parent = find(path);
  if (parent == nullptr) return names;
  const std::string prefix = path == "/" ? path : path + "/";
  for (const std::string& name : parent->children) {
    if (find(prefix + name) != nullptr) names.push_back(name);
  }
  return names;
}

}  // namespace headrace::emu
