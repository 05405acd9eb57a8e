// SPDX-License-Identifier: Apache-2.0
#include "headrace/dsa/descriptor.hpp"

#include "headrace/base/atomic.hpp"

namespace headrace::dsa {

std::uint8_t load_status(const ::dsa_completion_record& record) {
  // The field is volatile for the sake of C programs; the device's store is atomic and releases.
  const auto& status = const_cast<const std::uint8_t&>(record.status);
  return load_acquire(status);  // edge: completion-record (acquire)
}

std::string_view name(Opcode opcode) {
  switch (opcode) {
    case Opcode::noop: return "noop";
    case Opcode::batch: return "batch";
    case Opcode::drain: return "drain";
    case Opcode::move: return "move";
    case Opcode::fill: return "fill";
    case Opcode::compare: return "compare";
    case Opcode::compare_pattern: return "compare_pattern";
    case Opcode::create_delta: return "create_delta";
    case Opcode::apply_delta: return "apply_delta";
    case Opcode::dualcast: return "dualcast";
    case Opcode::crc: return "crc";
    case Opcode::copy_crc: return "copy_crc";
    case Opcode::dif_check: return "dif_check";
    case Opcode::dif_insert: return "dif_insert";
    case Opcode::dif_strip: return "dif_strip";
    case Opcode::dif_update: return "dif_update";
    case Opcode::cache_flush: return "cache_flush";
  }
  return "unknown";
}

}  // namespace headrace::dsa
