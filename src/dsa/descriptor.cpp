// SPDX-License-Identifier: Apache-2.0
#include "headrace/dsa/descriptor.hpp"

#include "headrace/base/atomic.hpp"
#include "headrace/base/names.hpp"

namespace headrace::dsa {

std::uint8_t load_status(const ::dsa_completion_record& record) {
  // The header declares the field volatile for C; the device's store is atomic with release order.
  const auto& status = const_cast<const std::uint8_t&>(record.status);
  return load_acquire(status);  // edge: completion-record (acquire)
}

namespace {

constexpr auto kStatuses = make_meanings<Status>({
    {Status::none, "The device has not written the record yet: go on waiting."},
    {Status::success, "The descriptor was carried out."},
    {Status::success_unexpected,
     "The descriptor was carried out, and its result is not the expected one."},
    {Status::page_fault,
     "A page was not present: touch the address in the record and submit the rest, or allow block "
     "on fault."},
    {Status::page_fault_refused,
     "A page is not mapped for this access, and waiting for it did not help: check the addresses "
     "and that the buffers still exist."},
    {Status::batch_failed, "Some descriptors of the batch failed: check the record of each."},
    {Status::batch_page_fault,
     "The list of descriptors could not be read: touch it before submitting the batch."},
    {Status::delta_offset_not_increasing,
     "The offsets of the delta record do not increase: it is damaged, or not a delta record."},
    {Status::delta_offset_out_of_range,
     "An offset of the delta record lies beyond the target: the record belongs to a larger "
     "buffer."},
    {Status::dif_error,
     "A block's integrity field does not match its data or tags: the result byte shows which."},
    {Status::bad_opcode,
     "The device or the work queue does not allow this opcode here: check op_config."},
    {Status::bad_flags, "A flag is not allowed with this opcode: the record names the flags."},
    {Status::reserved_not_zero,
     "A reserved field is not zero: clear the descriptor before filling it in."},
    {Status::bad_transfer_size,
     "The transfer size is zero, not a multiple of the unit, or larger than the work queue allows: "
     "split it."},
    {Status::bad_descriptor_count,
     "A batch holds at least two descriptors and no more than the work queue allows: split it."},
    {Status::bad_delta_size,
     "The size of the delta record is not allowed: a multiple of 10 bytes, at least 80 to create "
     "one."},
    {Status::buffers_overlap, "Buffers overlap, which this opcode does not allow."},
    {Status::dualcast_misaligned,
     "The two targets of a dualcast must have the same offset within their pages."},
    {Status::descriptor_list_misaligned, "The list of descriptors must be aligned to 64 bytes."},
    {Status::bad_interrupt_handle,
     "The interrupt handle is not one of this device: ask the driver for one, or poll."},
    {Status::record_untranslatable, "The completion record's address is not mapped."},
    {Status::record_misaligned, "The completion record must be aligned to 32 bytes."},
    {Status::address_misaligned, "An address must be aligned to 8 bytes for this opcode."},
    {Status::bad_privilege,
     "The descriptor asks for a privilege that the work queue does not have."},
    {Status::bad_traffic_class, "The flags select a traffic class that the group does not allow."},
    {Status::readback_page_fault,
     "A page was not present when the device read back the written data: touch it and repeat."},
    {Status::hardware_error,
     "The device reported a hardware error: repeat on another path, and check its error "
     "registers."},
    {Status::readback_hardware_error,
     "The device reported a hardware error when it read back the written data: repeat."},
    {Status::translation_failed,
     "An address could not be translated: check the IOMMU's messages in the kernel log."},
});

}  // namespace

std::string_view explain(std::uint8_t raw_status) {
  if (raw_status == kStatusAborted) {
    return "The device was reset or disabled before the descriptor was carried out: submit it "
           "again once the device is back.";
  }
  return meaning(kStatuses, status_of(raw_status),
                 "The device returned a status that this library does not know.");
}

}  // namespace headrace::dsa
