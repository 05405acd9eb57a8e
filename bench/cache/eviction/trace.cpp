// SPDX-License-Identifier: Apache-2.0
#include "trace.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <random>
#include <system_error>
#include <utility>

namespace headrace::bench {
namespace {

using Accesses = std::vector<std::uint32_t>;
using Random = std::mt19937_64;

/// Maximum accesses in a file.
constexpr std::size_t kParsedMax = std::size_t{1} << 24U;
constexpr std::uint32_t kPopularCount = 4096;
constexpr std::uint32_t kLoopCount = 1280;
constexpr std::uint32_t kNear = 8;
constexpr std::uint32_t kFar = 200;
constexpr std::uint32_t kWorkingSetCount = 384;
/// The shifting working set replaces kShiftCount regions every kShiftAccesses accesses.
constexpr std::size_t kShiftAccesses = 2000;
constexpr std::uint32_t kShiftCount = kWorkingSetCount / 4;

// The distributions of the standard library differ between its implementations.
std::uint32_t below(Random& random, std::uint32_t bound) {
  return static_cast<std::uint32_t>(random() % bound);
}
double fraction(Random& random) {
  return static_cast<double>(random() >> 11U) * 0x1p-53;
}

/// The k-th region is accessed with frequency proportional to k^-exponent.
Accesses zipf(Random& random, std::size_t count, double exponent) {
  std::vector<double> sums(kPopularCount);
  double sum = 0;
  for (std::uint32_t i = 0; i < kPopularCount; ++i) {
    sums[i] = sum += std::pow(i + 1.0, -exponent);
  }
  Accesses accesses;
  for (std::size_t i = 0; i < count; ++i) {
    const auto found = std::upper_bound(sums.begin(), sums.end() - 1, fraction(random) * sum);
    accesses.push_back(static_cast<std::uint32_t>(found - sums.begin()));
  }
  return accesses;
}

Accesses loop(std::size_t count) {
  Accesses accesses;
  for (std::size_t i = 0; i < count; ++i) {
    accesses.push_back(static_cast<std::uint32_t>(i % kLoopCount));
  }
  return accesses;
}

/// No region is accessed twice.
Accesses scan(std::size_t count) {
  Accesses accesses(count);
  std::iota(accesses.begin(), accesses.end(), 0U);
  return accesses;
}

/// Accesses each region once, and again `distance` regions later, like a prefetcher that runs that
/// far ahead and drops the handle, or a second pass at that distance.
Accesses twice(std::size_t count, std::uint32_t distance) {
  Accesses accesses;
  for (std::uint32_t i = 0; accesses.size() < count; ++i) {
    accesses.push_back(i);
    if (i >= distance) accesses.push_back(i - distance);
  }
  accesses.resize(count);
  return accesses;
}

Accesses working_set(Random& random, std::size_t count) {
  Accesses accesses;
  for (std::size_t i = 0; i < count; ++i) accesses.push_back(below(random, kWorkingSetCount));
  return accesses;
}

Accesses shifting_set(Random& random, std::size_t count) {
  Accesses accesses;
  for (std::size_t i = 0; i < count; ++i) {
    const auto first = static_cast<std::uint32_t>(i / kShiftAccesses) * kShiftCount;
    accesses.push_back(first + below(random, kWorkingSetCount));
  }
  return accesses;
}

/// Alternates stretches of 1 to 2 * stretch - 1 accesses of both, up to the length of `one`.
/// Regions of `other` are renumbered to be disjoint.
Accesses interleaved(Random& random, const Accesses& one, const Accesses& other,
                     std::uint32_t stretch) {
  const std::uint32_t offset = *std::max_element(one.begin(), one.end()) + 1;
  Accesses accesses;
  std::size_t next_one = 0;
  std::size_t next_other = 0;
  for (bool is_one = true;; is_one = !is_one) {
    for (std::uint32_t left = 1 + below(random, 2 * stretch - 1); left > 0; --left) {
      if (accesses.size() == one.size()) return accesses;
      accesses.push_back(is_one ? one[next_one++] : offset + other[next_other++]);
    }
  }
}

}  // namespace

std::uint32_t Trace::region_count() const {
  return accesses.empty() ? 0 : *std::max_element(accesses.begin(), accesses.end()) + 1;
}

std::vector<Trace> make_traces(std::uint64_t seed, std::size_t access_count) {
  Random random(seed);
  std::vector<Trace> traces;
  traces.push_back({"zipf-0.8", zipf(random, access_count, 0.8)});
  traces.push_back({"zipf-1.0", zipf(random, access_count, 1.0)});
  traces.push_back({"zipf-1.2", zipf(random, access_count, 1.2)});
  traces.push_back({"loop", loop(access_count)});
  traces.push_back({"twice-near", twice(access_count, kNear)});
  traces.push_back({"twice-far", twice(access_count, kFar)});
  traces.push_back({"set-and-twice-near", interleaved(random, working_set(random, access_count),
                                                      twice(access_count, kNear), 4)});
  traces.push_back({"shifting-set", shifting_set(random, access_count)});
  traces.push_back({"set-and-scan",
                    interleaved(random, working_set(random, access_count), scan(access_count), 4)});
  traces.push_back({"shifting-set-and-scan", interleaved(random, shifting_set(random, access_count),
                                                         scan(access_count), 100)});
  traces.push_back({"zipf-1.0-and-loop",
                    interleaved(random, zipf(random, access_count, 1.0), loop(access_count), 100)});
  return traces;
}

Trace parse_trace(std::string name, std::string_view text) {
  Trace trace{std::move(name), {}};
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    if (*at == '#') {
      at = std::find(at, end, '\n');
    } else if (*at == ' ' || *at == '\n') {
      ++at;
    } else {
      std::uint32_t first = 0;
      auto parsed = std::from_chars(at, end, first);
      std::uint32_t last = first;
      if (parsed.ec == std::errc() && parsed.ptr != end && *parsed.ptr == '-') {
        parsed = std::from_chars(parsed.ptr + 1, end, last);
      }
      if (parsed.ec != std::errc() || last < first) return {};
      if (last - first >= kParsedMax - trace.accesses.size()) return {};
      for (std::uint32_t region = first; region <= last; ++region) {
        trace.accesses.push_back(region);
      }
      at = parsed.ptr;
    }
  }
  return trace;
}

}  // namespace headrace::bench
