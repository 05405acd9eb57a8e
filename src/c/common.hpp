// SPDX-License-Identifier: Apache-2.0
// What all parts of headrace.h share: errors, options with a size, and objects behind handles.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <memory>
#include <new>
#include <string_view>
#include <type_traits>

#include "headrace.h"
#include "headrace/base/check.hpp"
#include "headrace/base/result.hpp"

namespace headrace::c {

template <std::size_t kRoom>
void store(char (&room)[kRoom], std::string_view text) {
  room[text.copy(room, kRoom - 1)] = '\0';
}

inline void store(headrace_error* into, const Error& error) {
  if (into == nullptr) return;
  into->os_errno = error.os_errno;
  store(into->code, name(error.code));
  store(into->text, error.message());
}

/// Bytes of an options struct in the version that introduced struct_size, which 0 stands for. Never
/// change one: a program that leaves struct_size 0 has no more.
template <typename Options>
inline constexpr std::size_t kFirstBytes = 0;
template <>
inline constexpr std::size_t kFirstBytes<headrace_engine_options> = 136;
template <>
inline constexpr std::size_t kFirstBytes<headrace_submit_options> = 80;
template <>
inline constexpr std::size_t kFirstBytes<headrace_channel_options> = 40;
template <>
inline constexpr std::size_t kFirstBytes<headrace_cache_options> = 32;
template <>
inline constexpr std::size_t kFirstBytes<headrace_store_options> = 40;
template <>
inline constexpr std::size_t kFirstBytes<headrace_tier> = 40;

template <typename Options>
std::size_t size_of(const Options* given) {
  return given->struct_size == 0 ? kFirstBytes<Options> : given->struct_size;
}
/// The next element of an array of options.
template <typename Options>
const Options* next_options(const Options* given) {
  return reinterpret_cast<const Options*>(reinterpret_cast<const unsigned char*>(given) +
                                          size_of(given));
}

/// The options of a caller whose struct may be older and shorter than ours: what it lacks is zero.
///
/// Fails: unsupported if a newer caller sets an option that this library does not have.
template <typename Options>
Result<Options> read_options(const Options* given, const char* tried) {
  static_assert(std::is_trivially_copyable_v<Options> && kFirstBytes<Options> != 0 &&
                kFirstBytes<Options> <= sizeof(Options));
  Options made{};
  if (given == nullptr) return made;
  const std::size_t size = size_of(given);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof(Options); i < size; ++i) {
    if (bytes[i] != 0) {
      return fail(Code::unsupported, tried, "the program sets an option that this library lacks",
                  "install the version of libheadrace that the program was compiled with");
    }
  }
  std::memcpy(&made, given, std::min(size, sizeof(Options)));
  made.struct_size = sizeof(Options);
  return made;
}

/// As store(), for a sentence in parts. Allocates nothing.
inline void store(headrace_error* into, Code code, std::initializer_list<std::string_view> parts) {
  if (into == nullptr) return;
  into->os_errno = 0;
  store(into->code, name(code));
  std::size_t length = 0;
  for (const std::string_view part : parts) {
    length += part.copy(into->text + length, sizeof(into->text) - 1 - length);
  }
  into->text[length] = '\0';
}

/// Whether `act`, which returns Result<void>, succeeds; if not, the reason is in `error`. `act` may
/// throw what the standard library throws.
template <typename Act>
bool succeeds(const char* tried, headrace_error* error, const Act& act) noexcept {
  try {
    const Result<void> done = act();
    if (done) return true;
    store(error, done.error());
  } catch (const std::bad_alloc&) {
    store(error, Code::out_of_memory, {"cannot ", tried, ": there is no memory left; free some"});
  } catch (const std::exception& problem) {
    store(error, Code::io_failed, {"cannot ", tried, ": ", problem.what(), "; try again"});
  }
  return false;
}

/// What `make`, which returns Result<unique_ptr<T>>, makes; null with the reason in `error`.
template <typename Handle, typename Make>
Handle* make_for_c(const char* tried, headrace_error* error, const Make& make) noexcept {
  Handle* handle = nullptr;
  succeeds(tried, error, [&]() -> Result<void> {
    HEADRACE_TAKE(made, make());
    handle = reinterpret_cast<Handle*>(made->release());
    return {};
  });
  return handle;
}

/// Saturates at INT64_MAX.
inline std::chrono::nanoseconds time_of(std::uint64_t time_ns) {
  return std::chrono::nanoseconds(std::min(time_ns, std::uint64_t{INT64_MAX}));
}

/// The C++ object behind a handle, which must not be null.
template <typename Object, typename Handle>
Object& object_of(Handle* handle) {
  HEADRACE_CHECK(handle != nullptr, "a handle of headrace.h is not null");
  return *reinterpret_cast<Object*>(const_cast<std::remove_const_t<Handle>*>(handle));
}

}  // namespace headrace::c
