// SPDX-License-Identifier: Apache-2.0
// The same measurement on an emulated device in this process, through its Portal.
//
//   headrace-emulator-inprocess ROUNDS NOOPS COPY_BYTES
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "emu/device/device.hpp"
#include "rounds.h"

namespace {

bool submit(void* context, const dsa_hw_desc* descriptor) {
  headrace::dsa::Descriptor copy;
  std::memcpy(&copy, descriptor, sizeof copy);
  return static_cast<headrace::dsa::Portal*>(context)->submit(copy);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace headrace;
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s ROUNDS NOOPS COPY_BYTES\n", argv[0]);
    return 2;
  }
  const std::vector<emu::DeviceConfig> devices{emu::default_device(1, 0, 1, "meter")};
  auto device = emu::Device::create(devices, {});
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().message().c_str());
    return 1;
  }
  const meter_portal portal{&(*device)->portal(DeviceId{0}, QueueId{0}), submit};
  const meter_scale scale{static_cast<unsigned>(std::strtoul(argv[1], nullptr, 10)),
                          static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)),
                          std::strtoul(argv[3], nullptr, 10)};
  return meter_run(&portal, &scale, stdout);
}
