// SPDX-License-Identifier: Apache-2.0
// Register names: <linux/pci_regs.h>. Capabilities and identifiers are those of DSA 1.0. [S] Intel
// DSA architecture specification, configuration registers
#include "launch/emulator/pci.hpp"

#include <fmt/format.h>
#include <linux/pci_regs.h>

namespace headrace::emu {
namespace {

constexpr std::size_t kHeaderBytes = 64;
// Two memory regions: control registers, and the portals of the WQs.
constexpr std::uint64_t kControlBytes = 64 << 10U;
constexpr std::uint64_t kPortalBytes = 128 << 10U;
constexpr std::uint64_t kMemoryBegin = 0x203f'fe00'0000;
constexpr std::uint64_t kMemoryStride = 0x10'0000;
constexpr std::uint64_t kPortalOffset = 0x8'0000;
constexpr std::uint32_t kRegionFlags = PCI_BASE_ADDRESS_MEM_TYPE_64 | PCI_BASE_ADDRESS_MEM_PREFETCH;

// Offsets of the capabilities.
constexpr std::size_t kExpress = 0x40;
constexpr std::size_t kMsix = 0x80;
constexpr std::size_t kPower = 0x90;
constexpr std::size_t kErrors = 0x100;
constexpr std::size_t kAts = 0x220;
constexpr std::size_t kPasid = 0x230;
constexpr std::size_t kPri = 0x240;

constexpr std::uint32_t extended(std::uint32_t id, std::uint32_t version, std::size_t next) {
  return id | version << 16U | static_cast<std::uint32_t>(next) << 20U;
}

}  // namespace

template <typename T>
void PciFunction::set(std::size_t offset, T value, T writable) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes_[offset + i] = static_cast<std::uint8_t>(value >> 8U * i);
    writable_[offset + i] = static_cast<std::uint8_t>(writable >> 8U * i);
  }
}

PciFunction::PciFunction(std::uint32_t index) : memory_(kMemoryBegin + index * kMemoryStride) {
  const Lock lock(mutex_);
  using U8 = std::uint8_t;
  using U16 = std::uint16_t;
  using U32 = std::uint32_t;
  using U64 = std::uint64_t;
  set<U16>(PCI_VENDOR_ID, 0x8086, 0);
  set<U16>(PCI_DEVICE_ID, 0x0b25, 0);
  set<U16>(PCI_COMMAND, PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_INTX_DISABLE,
           PCI_COMMAND_MEMORY | PCI_COMMAND_MASTER | PCI_COMMAND_PARITY | PCI_COMMAND_SERR |
               PCI_COMMAND_INTX_DISABLE);
  set<U16>(PCI_STATUS, PCI_STATUS_CAP_LIST, 0);
  set<U32>(PCI_CLASS_REVISION, 0x0880'0000, 0);
  set<U8>(PCI_CACHE_LINE_SIZE, 16, 0xff);
  set<U64>(PCI_BASE_ADDRESS_0, memory_ | kRegionFlags, ~(kControlBytes - 1));
  set<U64>(PCI_BASE_ADDRESS_2, (memory_ + kPortalOffset) | kRegionFlags, ~(kPortalBytes - 1));
  set<U16>(PCI_SUBSYSTEM_VENDOR_ID, 0x8086, 0);
  set<U8>(PCI_CAPABILITY_LIST, kExpress, 0);
  set<U8>(PCI_INTERRUPT_LINE, 0, 0xff);

  set<U16>(kExpress, PCI_CAP_ID_EXP | kMsix << 8U, 0);
  set<U16>(kExpress + PCI_EXP_FLAGS, 2 | PCI_EXP_TYPE_RC_END << 4U, 0);
  set<U32>(kExpress + PCI_EXP_DEVCAP, 0x1000'8022, 0);  // Payload 512, extended tags, reset.
  set<U16>(kExpress + PCI_EXP_DEVCTL, 0x2951, 0x7fff);
  set<U32>(kExpress + PCI_EXP_DEVCAP2, 0x7017'0016, 0);
  set<U16>(kExpress + PCI_EXP_DEVCTL2, 0x0400, 0xffff);
  set<U16>(kMsix, PCI_CAP_ID_MSIX | kPower << 8U, 0);
  set<U16>(kMsix + PCI_MSIX_FLAGS, 8 | PCI_MSIX_FLAGS_ENABLE,  // Nine vectors.
           PCI_MSIX_FLAGS_ENABLE | PCI_MSIX_FLAGS_MASKALL);
  set<U32>(kMsix + PCI_MSIX_TABLE, 0x2000, 0);
  set<U32>(kMsix + PCI_MSIX_PBA, 0x3000, 0);
  set<U16>(kPower, PCI_CAP_ID_PM, 0);
  set<U16>(kPower + PCI_PM_PMC, 3, 0);
  set<U16>(kPower + PCI_PM_CTRL, PCI_PM_CTRL_NO_SOFT_RESET, PCI_PM_CTRL_STATE_MASK);

  set<U32>(kErrors, extended(PCI_EXT_CAP_ID_ERR, 2, kAts), 0);
  set<U32>(kErrors + PCI_ERR_UNCOR_MASK, 0, ~U32{0});
  set<U32>(kErrors + PCI_ERR_UNCOR_SEVER, 0x0046'2030, ~U32{0});
  set<U32>(kErrors + PCI_ERR_COR_MASK, 0x2000, ~U32{0});
  set<U32>(kAts, extended(PCI_EXT_CAP_ID_ATS, 1, kPasid), 0);
  set<U16>(kAts + PCI_ATS_CAP, PCI_ATS_CAP_PAGE_ALIGNED, 0);
  set<U16>(kAts + PCI_ATS_CTRL, PCI_ATS_CTRL_ENABLE, PCI_ATS_CTRL_ENABLE | 0x1f);
  set<U32>(kPasid, extended(PCI_EXT_CAP_ID_PASID, 1, kPri), 0);
  set<U16>(kPasid + PCI_PASID_CAP, PCI_PASID_CAP_PRIV | 20U << 8U, 0);
  set<U16>(kPasid + PCI_PASID_CTRL, PCI_PASID_CTRL_ENABLE | PCI_PASID_CTRL_PRIV,
           PCI_PASID_CTRL_ENABLE | PCI_PASID_CTRL_PRIV);
  set<U32>(kPri, extended(PCI_EXT_CAP_ID_PRI, 1, 0), 0);
  set<U16>(kPri + PCI_PRI_CTRL, PCI_PRI_CTRL_ENABLE, PCI_PRI_CTRL_ENABLE);
  set<U16>(kPri + PCI_PRI_STATUS, PCI_PRI_STATUS_STOPPED | PCI_PRI_STATUS_PASID, 0);
  set<U32>(kPri + PCI_PRI_MAX_REQ, 512, 0);
  set<U32>(kPri + PCI_PRI_ALLOC_REQ, 512, ~U32{0});
}

std::string PciFunction::read(bool privileged) const {
  const Lock lock(mutex_);
  return {bytes_.begin(), bytes_.begin() + (privileged ? kConfigBytes : kHeaderBytes)};
}

void PciFunction::write(std::size_t offset, std::string_view bytes) {
  const Lock lock(mutex_);
  for (const char each : bytes) {
    if (offset >= kConfigBytes) return;
    const std::uint8_t kept = bytes_[offset] & static_cast<std::uint8_t>(~writable_[offset]);
    bytes_[offset] =
        static_cast<std::uint8_t>(kept | (static_cast<std::uint8_t>(each) & writable_[offset]));
    ++offset;
  }
}

std::string PciFunction::resources() const {
  constexpr std::uint64_t kFlags = 0x14220c;  // Memory, prefetchable, 64 bits, sized.
  constexpr int kRegionCount = 13;
  std::string text;
  for (int i = 0; i < kRegionCount; ++i) {
    const std::uint64_t begin = i == 0 ? memory_ : i == 2 ? memory_ + kPortalOffset : 0;
    const std::uint64_t size = i == 0 ? kControlBytes : kPortalBytes;
    text += begin == 0
                ? fmt::format("{:#018x} {:#018x} {:#018x}\n", 0, 0, 0)
                : fmt::format("{:#018x} {:#018x} {:#018x}\n", begin, begin + size - 1, kFlags);
  }
  return text;
}

}  // namespace headrace::emu
