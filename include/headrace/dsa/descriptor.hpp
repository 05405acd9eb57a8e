// SPDX-License-Identifier: Apache-2.0
// The wire format of Intel's Data Streaming Accelerator (DSA): descriptors, completion records,
// opcodes, flags and status codes. The layout is that of <linux/idxd.h>.
// Not here: devices (emu) and clients (engine).
#pragma once

#include <linux/idxd.h>

#include <cstdint>
#include <string_view>

#include "headrace/base/export.hpp"
#include "headrace/base/names.hpp"

namespace headrace::dsa {

using headrace::name;

/// A 64-byte command to the device, with the fields of `dsa_hw_desc`.
///
/// Threading: confined until submitted; the device copies it at submission.
struct alignas(64) Descriptor : ::dsa_hw_desc {};
static_assert(sizeof(Descriptor) == 64);

/// 32 bytes that the device writes on completion, the status byte last. Poll it with load_status(),
/// never with a plain load.
///
/// Threading: belongs to the device from submission until the status is not zero.
struct alignas(32) CompletionRecord : ::dsa_completion_record {};
static_assert(sizeof(CompletionRecord) == 32);

enum class Opcode : std::uint8_t {
  noop = DSA_OPCODE_NOOP,
  batch = DSA_OPCODE_BATCH,
  drain = DSA_OPCODE_DRAIN,
  move = DSA_OPCODE_MEMMOVE,
  fill = DSA_OPCODE_MEMFILL,
  compare = DSA_OPCODE_COMPARE,
  compare_pattern = DSA_OPCODE_COMPVAL,
  create_delta = DSA_OPCODE_CR_DELTA,
  apply_delta = DSA_OPCODE_AP_DELTA,
  dualcast = DSA_OPCODE_DUALCAST,
  crc = DSA_OPCODE_CRCGEN,
  copy_crc = DSA_OPCODE_COPY_CRC,
  dif_check = DSA_OPCODE_DIF_CHECK,
  dif_insert = DSA_OPCODE_DIF_INS,
  dif_strip = DSA_OPCODE_DIF_STRP,
  dif_update = DSA_OPCODE_DIF_UPDT,
  cache_flush = DSA_OPCODE_CFLUSH,
};

/// Flags of a descriptor (`flags`, 24 bits).
namespace flag {
inline constexpr std::uint32_t fence = IDXD_OP_FLAG_FENCE;
inline constexpr std::uint32_t block_on_fault = IDXD_OP_FLAG_BOF;
inline constexpr std::uint32_t record_address_valid = IDXD_OP_FLAG_CRAV;
inline constexpr std::uint32_t request_record = IDXD_OP_FLAG_RCR;
inline constexpr std::uint32_t request_interrupt = IDXD_OP_FLAG_RCI;
inline constexpr std::uint32_t check_result = IDXD_OP_FLAG_CR;
inline constexpr std::uint32_t cache_control = IDXD_OP_FLAG_CC;
inline constexpr std::uint32_t strict_ordering = IDXD_OP_FLAG_STORD;
inline constexpr std::uint32_t destination_readback = IDXD_OP_FLAG_DRDBK;
// The meaning of bits 16 to 23 depends on the opcode; <linux/idxd.h> does not name them.
inline constexpr std::uint32_t crc_raw = 1U << 17;          ///< Seed and value are the register.
inline constexpr std::uint32_t crc_unreflected = 1U << 18;  ///< Data bits from the highest down.
inline constexpr std::uint32_t fill_16 = 1U << 16;          ///< A pattern of 16 bytes.
}  // namespace flag

/// Status byte of a completion record, without the bit that marks a fault as a write fault.
enum class Status : std::uint8_t {
  none = DSA_COMP_NONE,
  success = DSA_COMP_SUCCESS,
  success_unexpected = DSA_COMP_SUCCESS_PRED,
  page_fault = DSA_COMP_PAGE_FAULT_NOBOF,
  page_fault_refused = DSA_COMP_PAGE_FAULT_IR,
  batch_failed = DSA_COMP_BATCH_FAIL,
  batch_page_fault = DSA_COMP_BATCH_PAGE_FAULT,
  delta_offset_not_increasing = DSA_COMP_DR_OFFSET_NOINC,
  delta_offset_out_of_range = DSA_COMP_DR_OFFSET_ERANGE,
  dif_error = DSA_COMP_DIF_ERR,
  bad_opcode = DSA_COMP_BAD_OPCODE,
  bad_flags = DSA_COMP_INVALID_FLAGS,
  reserved_not_zero = DSA_COMP_NOZERO_RESERVE,
  bad_transfer_size = DSA_COMP_XFER_ERANGE,
  bad_descriptor_count = DSA_COMP_DESC_CNT_ERANGE,
  bad_delta_size = DSA_COMP_DR_ERANGE,
  buffers_overlap = DSA_COMP_OVERLAP_BUFFERS,
  dualcast_misaligned = DSA_COMP_DCAST_ERR,
  descriptor_list_misaligned = DSA_COMP_DESCLIST_ALIGN,
  bad_interrupt_handle = DSA_COMP_INT_HANDLE_INVAL,
  record_untranslatable = DSA_COMP_CRA_XLAT,
  record_misaligned = DSA_COMP_CRA_ALIGN,
  address_misaligned = DSA_COMP_ADDR_ALIGN,
  bad_privilege = DSA_COMP_PRIV_BAD,
  bad_traffic_class = DSA_COMP_TRAFFIC_CLASS_CONF,
  readback_page_fault = DSA_COMP_PFAULT_RDBA,
  hardware_error = DSA_COMP_HW_ERR1,
  readback_hardware_error = DSA_COMP_HW_ERR_DRB,
  translation_failed = DSA_COMP_TRANSLATION_FAIL,
};

/// Status byte of a descriptor aborted because the device was reset, was disabled or failed. Not in
/// <linux/idxd.h>: a "software defined" value that the kernel driver writes to the records of its
/// own descriptors (IDXD_COMP_DESC_ABORT, drivers/dma/idxd). Test it before masking.
inline constexpr std::uint8_t kStatusAborted = 0xff;

/// Status of a raw status byte, without the write bit. kStatusAborted has no Status.
[[nodiscard]] constexpr Status status_of(std::uint8_t raw) {
  return static_cast<Status>(raw & DSA_COMP_STATUS_MASK);
}
/// Whether the page fault with status `raw` was on a write.
[[nodiscard]] constexpr bool is_write_fault(std::uint8_t raw) {
  return (raw & DSA_COMP_STATUS_WRITE) != 0;
}
/// Reads the status byte of a record that the device may be writing. If it is not zero, everything
/// that the device wrote before it is visible.
[[nodiscard]] HEADRACE_API std::uint8_t load_status(const ::dsa_completion_record& record);

/// Meaning of a raw status byte, and remedy, for a person.
[[nodiscard]] HEADRACE_API std::string_view explain(std::uint8_t raw_status);

}  // namespace headrace::dsa
