// SPDX-License-Identifier: Apache-2.0
// Types for quantities and numbers that are easily confused, and their text form.
// Capacity is binary (KiB, MiB, GiB), rate is decimal (1 GB/s = 1e9 bytes/s).
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/result.hpp"

namespace headrace {

/// A number that identifies something: comparable, no arithmetic.
///
/// Threading: immutable.
template <typename Tag, typename Rep>
class Identifier {
 public:
  using Representation = Rep;
  constexpr Identifier() = default;
  constexpr explicit Identifier(Rep value) : value_(value) {}
  [[nodiscard]] constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(const Identifier&, const Identifier&) = default;

 private:
  Rep value_{};
};

/// NUMA node, numbered by the operating system.
using NodeId = Identifier<struct NodeIdTag, std::uint32_t>;
/// Logical processor, numbered by the operating system.
using CpuId = Identifier<struct CpuIdTag, std::uint32_t>;
/// DSA device, numbered by the driver (dsaN).
using DeviceId = Identifier<struct DeviceIdTag, std::uint32_t>;
/// DSA work queue of one device (wqN.M).
using QueueId = Identifier<struct QueueIdTag, std::uint32_t>;

/// A number of bytes.
///
/// Threading: immutable.
class Bytes {
 public:
  constexpr Bytes() = default;
  constexpr explicit Bytes(std::uint64_t count) : count_(count) {}
  [[nodiscard]] constexpr std::uint64_t count() const { return count_; }
  friend constexpr auto operator<=>(const Bytes&, const Bytes&) = default;
  constexpr Bytes& operator+=(Bytes other) {
    count_ += other.count_;
    return *this;
  }
  friend constexpr Bytes operator+(Bytes a, Bytes b) { return Bytes(a.count_ + b.count_); }

 private:
  std::uint64_t count_ = 0;
};

constexpr Bytes kib(std::uint64_t count) {
  return Bytes(count << 10U);
}
constexpr Bytes mib(std::uint64_t count) {
  return Bytes(count << 20U);
}
constexpr Bytes gib(std::uint64_t count) {
  return Bytes(count << 30U);
}

/// A data rate. 1 GB/s = 1e9 bytes/s.
///
/// Threading: immutable.
class BytesPerSecond {
 public:
  constexpr BytesPerSecond() = default;
  constexpr explicit BytesPerSecond(double count) : count_(count) {}
  [[nodiscard]] constexpr double count() const { return count_; }
  friend constexpr auto operator<=>(const BytesPerSecond&, const BytesPerSecond&) = default;

 private:
  double count_ = 0;
};

/// Text such as "512 B", "1.5 MiB" or "16 GiB": in the largest unit that gives at least 1.
[[nodiscard]] HEADRACE_API std::string to_text(Bytes bytes);
/// Text such as "70.4 GB/s".
[[nodiscard]] HEADRACE_API std::string to_text(BytesPerSecond rate);

/// Count and noun: "1 worker thread", "2 worker threads", "3 entries".
[[nodiscard]] HEADRACE_API std::string counted(std::uint64_t count, std::string_view noun);

/// Reads "4096", "64KiB", "1.5 GiB" or "64K" (K, M, G and T are binary) under every locale.
///
/// Fails: invalid_argument for anything else, for fractions of a byte, and for 2^63 bytes or more.
[[nodiscard]] HEADRACE_API Result<Bytes> parse_bytes(std::string_view text);

}  // namespace headrace

namespace std {

template <typename Tag, typename Rep>
struct hash<headrace::Identifier<Tag, Rep>> {
  size_t operator()(const headrace::Identifier<Tag, Rep>& id) const noexcept {
    return hash<Rep>{}(id.value());
  }
};

}  // namespace std
