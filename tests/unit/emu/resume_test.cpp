// SPDX-License-Identifier: Apache-2.0
// Faults: a page is absent at every place, at both ends of every operand. The record reports the
// progress, nothing beyond is accessed, and a client that maps the page and resumes from the record
// ends with the same bytes and result as without a fault.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <vector>

#include "emu/operation/operation.hpp"
#include "emu/operation/rules.hpp"
#include "emu/platform/guarded.hpp"
#include "operands.hpp"
#include "support/guarded_buffer.hpp"

namespace headrace::emu::resume_test {
namespace {

using dsa::CompletionRecord;
using dsa::Descriptor;
using dsa::Opcode;
using operands::address_of;
using operands::descriptor_of;
using operands::kPageBytes;
using operands::noise;
using test::GuardedBuffer;

// Contiguous pages, each of which can be unmapped and restored with its content.
class Pages {
 public:
  explicit Pages(std::size_t page_count, std::uint32_t seed) : buffer_(page_count * kPageBytes) {
    const auto bytes = noise(buffer_.bytes().size(), seed);
    std::memcpy(buffer_.bytes().data(), bytes.data(), bytes.size());
  }
  [[nodiscard]] std::byte* data() const { return buffer_.bytes().data(); }
  [[nodiscard]] std::size_t page_count() const { return buffer_.bytes().size() / kPageBytes; }
  void forbid(std::size_t page) const { set(page, PROT_NONE); }
  void allow(std::size_t page) const { set(page, PROT_READ | PROT_WRITE); }
  [[nodiscard]] std::vector<std::byte> copy() const {
    return {buffer_.bytes().begin(), buffer_.bytes().end()};
  }

 private:
  void set(std::size_t page, int protection) const {
    ASSERT_EQ(::mprotect(data() + page * kPageBytes, kPageBytes, protection), 0);
  }
  GuardedBuffer buffer_;
};

constexpr std::size_t kPages = 5;

// Three operands at an unaligned offset in their pages, and the client's resume step.
struct Case {
  const char* name;
  std::function<Descriptor(const Pages&, const Pages&, const Pages&)> make;
  std::function<void(Descriptor&, const CompletionRecord&)> resume;
  std::size_t offset_max = 24;  // Offset of the operands in the first page.
  std::size_t offset_step = 1;
};

Address at(const Pages& pages, std::size_t offset) {
  return address_of(pages.data()) + offset;
}

void skip(Descriptor& descriptor, const CompletionRecord& record) {
  descriptor.src_addr += record.bytes_completed;
  descriptor.dst_addr += record.bytes_completed;
  descriptor.xfer_size -= record.bytes_completed;
}

constexpr std::size_t kBytes = 3 * kPageBytes + 1000;

Case simple(Opcode opcode, std::size_t skew) {
  return {dsa::name(opcode).data(),
          [=](const Pages& one, const Pages& two, const Pages& three) {
            auto descriptor = descriptor_of(opcode, at(one, 5), at(two, 5 + skew), kBytes);
            if (opcode == Opcode::dualcast) descriptor.dest2 = at(three, 5 + skew);
            if (opcode == Opcode::copy_crc || opcode == Opcode::crc) descriptor.crc_seed = 9;
            return descriptor;
          },
          [=](Descriptor& descriptor, const CompletionRecord& record) {
            skip(descriptor, record);
            if (opcode == Opcode::dualcast) descriptor.dest2 += record.bytes_completed;
            if (opcode == Opcode::copy_crc || opcode == Opcode::crc) {
              descriptor.crc_seed = static_cast<std::uint32_t>(record.crc_val);
            }
          }};
}

Case pattern(Opcode opcode, bool wide) {
  return {dsa::name(opcode).data(),
          [=](const Pages& one, const Pages& two, const Pages&) {
            auto descriptor = descriptor_of(opcode, 0x0123456789abcdef, at(two, 3), kBytes);
            if (opcode == Opcode::compare_pattern) {
              descriptor.src_addr = at(one, 3);
              descriptor.comp_pattern = 0x0123456789abcdef;
            }
            if (wide) {
              descriptor.flags |= rules::kFlagLongPattern;
              descriptor.op_specific[0] = 7;
            }
            return descriptor;
          },
          [=](Descriptor& descriptor, const CompletionRecord& record) {
            EXPECT_EQ(record.bytes_completed % (wide ? 16 : 8), 0U);
            const std::uint64_t kept =
                opcode == Opcode::fill ? descriptor.pattern : descriptor.comp_pattern;
            skip(descriptor, record);
            (opcode == Opcode::fill ? descriptor.pattern : descriptor.comp_pattern) = kept;
          }};
}

Case dif(Opcode opcode, std::uint8_t block) {
  constexpr std::size_t kBlockBytes[] = {512, 520, 4096, 4104};
  const std::size_t source = kBlockBytes[block] + (opcode == Opcode::dif_insert ? 0 : 8);
  const std::size_t target = kBlockBytes[block] + (opcode == Opcode::dif_strip ? 0 : 8);
  return {dsa::name(opcode).data(),
          [=](const Pages& one, const Pages& two, const Pages&) {
            auto descriptor =
                descriptor_of(opcode, at(one, 9), at(two, 21), 3 * kPageBytes / source * source);
            descriptor.dif_chk_flags = block;
            descriptor.dest_dif_flag = opcode == Opcode::dif_insert || opcode == Opcode::dif_update
                                           ? rules::kDifIncrementAppTag
                                           : 0;
            if (opcode != Opcode::dif_insert) {
              descriptor.src_dif_flags = rules::kDifSkipGuard | rules::kDifSkipRefTag;
            }
            if (opcode == Opcode::dif_insert) {
              descriptor.ins_app_tag_seed = 5;
            } else {
              descriptor.chk_app_tag_mask = 0xffff;
            }
            return descriptor;
          },
          [=](Descriptor& descriptor, const CompletionRecord& record) {
            EXPECT_EQ(record.bytes_completed % source, 0U);
            descriptor.src_addr += record.bytes_completed;
            descriptor.dst_addr += record.bytes_completed / source * target;
            descriptor.xfer_size -= record.bytes_completed;
            if (opcode == Opcode::dif_insert) {
              descriptor.ins_ref_tag_seed = record.dif_ins_ref_tag;
              descriptor.ins_app_tag_seed = record.dif_ins_app_tag;
            } else {
              descriptor.chk_ref_tag_seed = record.dif_chk_ref_tag;
              descriptor.chk_app_tag_seed = record.dif_chk_app_tag;
            }
            if (opcode == Opcode::dif_update) {
              descriptor.dest_ref_tag_seed = record.dif_upd_dest_ref_tag;
              descriptor.dest_app_tag_seed = record.dif_upd_dest_app_tag;
            }
          }};
}

std::vector<Case> cases() {
  return {
      simple(Opcode::move, 0),      simple(Opcode::move, 1001),    simple(Opcode::dualcast, 333),
      simple(Opcode::crc, 0),       simple(Opcode::copy_crc, 777), simple(Opcode::cache_flush, 1),
      pattern(Opcode::fill, false), pattern(Opcode::fill, true),   dif(Opcode::dif_insert, 0),
      dif(Opcode::dif_insert, 3),   dif(Opcode::dif_strip, 1),     dif(Opcode::dif_update, 0),
      dif(Opcode::dif_check, 2)};
}

CompletionRecord run(const Descriptor& descriptor, std::size_t slice) {
  EXPECT_FALSE(refuse(descriptor, operands::kLimits, Origin::portal).has_value());
  return operands::run(descriptor, slice);
}

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() { guarded::install(); }
};

TEST_F(ResumeTest, an_operation_resumed_after_a_fault_ends_as_one_without) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    std::size_t fault_count = 0;
    for (std::size_t operand = 0; operand < 3; ++operand) {
      for (std::size_t page = 0; page < kPages; ++page) {
        for (const std::size_t slice : {std::size_t{100}, std::size_t{1} << 20}) {
          const Pages calm[] = {Pages(kPages, 1), Pages(kPages, 2), Pages(kPages, 3)};
          const CompletionRecord expected = run(each.make(calm[0], calm[1], calm[2]), slice);
          ASSERT_EQ(expected.status, DSA_COMP_SUCCESS);

          const Pages pages[] = {Pages(kPages, 1), Pages(kPages, 2), Pages(kPages, 3)};
          Descriptor descriptor = each.make(pages[0], pages[1], pages[2]);
          pages[operand].forbid(page);
          CompletionRecord record = run(descriptor, slice);
          pages[operand].allow(page);
          if (record.status != DSA_COMP_SUCCESS) {
            ++fault_count;
            EXPECT_EQ(dsa::status_of(record.status), dsa::Status::page_fault_refused);
            EXPECT_EQ(record.fault_addr, at(pages[operand], page * kPageBytes));
            each.resume(descriptor, record);
            record = run(descriptor, slice);
          }
          EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
          EXPECT_EQ(std::memcmp(record.op_specific, expected.op_specific, 16), 0);
          for (std::size_t index = 0; index < 3; ++index) {
            EXPECT_EQ(pages[index].copy(), calm[index].copy()) << operand << " " << page;
          }
        }
      }
    }
    EXPECT_GE(fault_count, kPages) << "the pages were not where the operands are";
  }
}

TEST_F(ResumeTest, a_fault_at_each_offset_of_a_unit_is_resumed_exactly) {
  // The operands end in the last mapped page; their end moves byte by byte.
  for (const bool write : {false, true}) {
    for (std::size_t there = 1; there <= 40; ++there) {
      for (const Opcode opcode : {Opcode::move, Opcode::fill, Opcode::copy_crc}) {
        if (opcode == Opcode::fill && !write) continue;
        const GuardedBuffer small(kPageBytes);
        const auto source = noise(64);
        std::vector<std::byte> whole(64);
        std::memcpy(small.back(there).data(), source.data(), there);
        auto descriptor =
            descriptor_of(opcode, address_of(source.data()), address_of(whole.data()), 64);
        if (opcode == Opcode::fill) descriptor.pattern = 0x1122334455667788;
        (write ? descriptor.dst_addr : descriptor.src_addr) = address_of(small.back(there).data());
        const auto record = operands::run(descriptor);
        EXPECT_EQ(record.status, DSA_COMP_PAGE_FAULT_IR | (write ? DSA_COMP_STATUS_WRITE : 0));
        EXPECT_EQ(record.bytes_completed, opcode == Opcode::fill ? there / 8 * 8 : there);
        const std::byte* const target = write ? small.back(there).data() : whole.data();
        for (std::size_t index = 0; index < there; ++index) {
          const auto expected = opcode == Opcode::fill
                                    ? static_cast<std::byte>(0x1122334455667788 >> index % 8 * 8)
                                    : source[index];
          ASSERT_EQ(target[index], expected) << there;
        }
      }
    }
  }
}

TEST_F(ResumeTest, a_comparison_resumes_where_it_stopped_and_a_difference_before_it_counts) {
  for (std::size_t page = 0; page < 4; ++page) {
    for (std::size_t operand = 0; operand < 2; ++operand) {
      const Pages pages[] = {Pages(kPages, 1), Pages(kPages, 1)};
      auto descriptor = descriptor_of(Opcode::compare, at(pages[0], 5), at(pages[1], 5), kBytes);
      pages[operand].forbid(page);
      auto record = run(descriptor, 1000);
      EXPECT_EQ(record.bytes_completed, page == 0 ? 0 : page * kPageBytes - 5);
      pages[operand].allow(page);
      skip(descriptor, record);
      EXPECT_EQ(run(descriptor, 1000).result, 0);
      if (page == 0) continue;
      pages[0].data()[page * kPageBytes - 1] ^= std::byte{1};
      pages[operand].forbid(page);
      descriptor = descriptor_of(Opcode::compare, at(pages[0], 5), at(pages[1], 5), kBytes);
      record = run(descriptor, 1U << 20);
      EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
      EXPECT_EQ(record.result, 1);
      EXPECT_EQ(record.bytes_completed, page * kPageBytes - 6);
      pages[operand].allow(page);
    }
  }
}

TEST_F(ResumeTest, a_pattern_comparison_resumes_at_a_whole_pattern) {
  const Pages pages(kPages, 1);
  const auto fill = descriptor_of(Opcode::fill, 0x0123456789abcdef, at(pages, 3), kBytes);
  ASSERT_EQ(run(fill, 1U << 20).status, DSA_COMP_SUCCESS);
  const Case each = pattern(Opcode::compare_pattern, false);
  for (std::size_t page = 0; page < 4; ++page) {
    Descriptor descriptor = each.make(pages, pages, pages);
    pages.forbid(page);
    const auto record = run(descriptor, 500);
    pages.allow(page);
    EXPECT_EQ(record.bytes_completed, page == 0 ? 0 : (page * kPageBytes - 3) / 8 * 8);
    each.resume(descriptor, record);
    EXPECT_EQ(run(descriptor, 500).result, 0);
  }
}

TEST_F(ResumeTest, a_downward_move_resumes_from_the_end) {
  for (std::size_t page = 0; page < kPages; ++page) {
    const Pages calm(kPages, 1);
    const Pages pages(kPages, 1);
    ASSERT_EQ(run(descriptor_of(Opcode::move, at(calm, 5), at(calm, 1700), kBytes), 900).status,
              DSA_COMP_SUCCESS);
    auto descriptor = descriptor_of(Opcode::move, at(pages, 5), at(pages, 1700), kBytes);
    pages.forbid(page);
    const auto record = run(descriptor, 900);
    pages.allow(page);
    if (record.status != DSA_COMP_SUCCESS) {
      EXPECT_EQ(record.result, 1);
      descriptor.xfer_size -= record.bytes_completed;
      EXPECT_EQ(run(descriptor, 900).status, DSA_COMP_SUCCESS);
    }
    EXPECT_EQ(pages.copy(), calm.copy()) << page;
  }
}

TEST_F(ResumeTest, a_delta_that_a_fault_stopped_begins_again_and_is_whole) {
  // As simple clients do (dsa_test): for every operation, advances source and target by
  // bytes_completed and reduces the size by it; the record stays the same.
  const auto go_on = [](Descriptor& descriptor, const CompletionRecord& record) {
    EXPECT_EQ(record.bytes_completed, 0U);
    EXPECT_EQ(record.result, 0);
    skip(descriptor, record);
  };
  for (std::size_t operand = 0; operand < 3; ++operand) {
    for (std::size_t page = 0; page < kPages; ++page) {
      const Pages original(kPages, 1);
      const Pages changed(kPages, 1);
      const Pages record_pages(kPages, 3);
      for (std::size_t unit = 0; unit < 3 * kPageBytes / 8; unit += 1 + unit % 7) {
        changed.data()[unit * 8 + 16 + unit % 8] ^= std::byte{0x80};
      }
      const std::size_t byte_count = 3 * kPageBytes;
      auto create =
          descriptor_of(Opcode::create_delta, at(original, 16), at(changed, 16), byte_count);
      create.delta_addr = at(record_pages, 8);
      create.max_delta_size = 4 * kPageBytes;
      const Pages* const operands[] = {&original, &changed, &record_pages};
      operands[operand]->forbid(page);
      auto record = run(create, 1000);
      operands[operand]->allow(page);
      if (record.status != DSA_COMP_SUCCESS) {
        EXPECT_EQ(record.delta_rec_size, 0U);
        go_on(create, record);
        record = run(create, 1000);
      }
      EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
      EXPECT_EQ(record.result, rules::kResultDifferent);

      const Pages target(kPages, 1);
      auto apply =
          descriptor_of(Opcode::apply_delta, at(record_pages, 8), at(target, 16), byte_count);
      apply.delta_rec_size = record.delta_rec_size;
      (operand == 2 ? record_pages : target).forbid(page);
      auto applied = run(apply, 1000);
      (operand == 2 ? record_pages : target).allow(page);
      if (applied.status != DSA_COMP_SUCCESS) {
        go_on(apply, applied);
        applied = run(apply, 1000);
      }
      EXPECT_EQ(applied.status, DSA_COMP_SUCCESS);
      EXPECT_EQ(target.copy(), changed.copy()) << operand << " " << page;
    }
  }
}

TEST_F(ResumeTest, a_fault_that_was_asked_for_ends_at_the_next_byte_and_is_resumed_alike) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.name);
    for (const std::size_t stop : {1U, 8U, 999U, 5000U}) {
      const Pages calm[] = {Pages(kPages, 1), Pages(kPages, 2), Pages(kPages, 3)};
      const auto expected = run(each.make(calm[0], calm[1], calm[2]), 1U << 20);
      const Pages pages[] = {Pages(kPages, 1), Pages(kPages, 2), Pages(kPages, 3)};
      auto descriptor = each.make(pages[0], pages[1], pages[2]);
      descriptor.flags &= ~dsa::flag::block_on_fault & 0xffffffU;
      Operation operation(descriptor, operands::kLimits);
      if (operation.advance(process_memory(), stop)) {
        EXPECT_EQ(stop, 5000U) << "only two large blocks are done so soon";
        continue;
      }
      operation.end_with_fault({at(pages[1], stop), true});
      EXPECT_EQ(operation.record().status, DSA_COMP_PAGE_FAULT_NOBOF | DSA_COMP_STATUS_WRITE);
      EXPECT_GE(operation.bytes_done(), stop);
      EXPECT_LE(operation.record().bytes_completed, operation.bytes_done());
      each.resume(descriptor, operation.record());
      const auto record = run(descriptor, 1U << 20);
      EXPECT_EQ(record.status, DSA_COMP_SUCCESS);
      EXPECT_EQ(std::memcmp(record.op_specific, expected.op_specific, 16), 0);
      for (std::size_t index = 0; index < 3; ++index) {
        EXPECT_EQ(pages[index].copy(), calm[index].copy());
      }
    }
  }
}

TEST_F(ResumeTest, an_abort_keeps_what_was_done) {
  const auto source = noise(5000);
  std::vector<std::byte> target(5000);
  Operation operation(
      descriptor_of(Opcode::move, address_of(source.data()), address_of(target.data()), 5000),
      operands::kLimits);
  ASSERT_FALSE(operation.advance(process_memory(), 1234));
  operation.end_with_status(dsa::kStatusAborted);
  EXPECT_EQ(operation.record().status, dsa::kStatusAborted);
  EXPECT_EQ(operation.record().bytes_completed, 1234U);
}

}  // namespace
}  // namespace headrace::emu::resume_test
