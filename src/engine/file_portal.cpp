// SPDX-License-Identifier: Apache-2.0
#include "file_portal.hpp"

#include <fmt/format.h>

#include <utility>

#include "headrace/platform/character_device.hpp"
#include "headrace/platform/enqueue.hpp"

namespace headrace::engine {
namespace {

/// Any multiple of 64 within the page reaches the queue. Descriptors that lie at different places
/// go to different ones, so that no two stores wait for each other in one write-combining buffer.
std::byte* door(std::byte* page, const dsa::Descriptor& descriptor) noexcept {
  constexpr std::uintptr_t kOffsets = 4096 - sizeof(dsa::Descriptor);
  // Slots of a mover are some hundred bytes apart: all bits above 63 take part.
  const auto place = reinterpret_cast<std::uintptr_t>(&descriptor);
  return page + ((place ^ place >> 6U) & kOffsets & ~std::uintptr_t{63});
}

class MappedPortal final : public dsa::Portal {
 public:
  MappedPortal(platform::CharacterDevice device, std::byte* page, dsa::QueueInfo info)
      : device_(std::move(device)), page_(page), info_(std::move(info)) {}
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    if (info_.mode == dsa::QueueMode::shared) {
      return platform::enqueue_command(door(page_, descriptor), &descriptor);
    }
    platform::move_direct(door(page_, descriptor), &descriptor);
    return true;
  }

 private:
  platform::CharacterDevice device_;
  std::byte* const page_;
  const dsa::QueueInfo info_;
};

class WritePortal final : public dsa::Portal {
 public:
  WritePortal(platform::CharacterDevice device, dsa::QueueInfo info)
      : device_(std::move(device)), info_(std::move(info)) {}
  [[nodiscard]] const dsa::QueueInfo& info() const override { return info_; }
  [[nodiscard]] bool submit(const dsa::Descriptor& descriptor) noexcept override {
    return device_.write(std::as_bytes(std::span(&descriptor, 1)));
  }

 private:
  platform::CharacterDevice device_;
  const dsa::QueueInfo info_;
};

}  // namespace

Result<OpenPortal> open_portal(const std::string& path, dsa::QueueInfo info) {
  auto device = platform::CharacterDevice::open(path);
  if (!device) return fail(device.error());
  auto page = device->map_page();
  if (page) {
    const char* const how = info.mode == dsa::QueueMode::shared
                                ? "ENQCMD to a mapped portal"
                                : "MOVDIR64B to a mapped portal, with credits";
    return OpenPortal{std::make_unique<MappedPortal>(std::move(*device), *page, std::move(info)),
                      {true, how}};
  }
  std::string note = fmt::format("write(), because {}", page.error().message());
  return OpenPortal{std::make_unique<WritePortal>(std::move(*device), std::move(info)),
                    {false, std::move(note)}};
}

}  // namespace headrace::engine
