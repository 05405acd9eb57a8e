// SPDX-License-Identifier: Apache-2.0
// Every opcode of DSA 1.0, in the order of <linux/idxd.h>.
#pragma once

#include <array>

#include "headrace/dsa/descriptor.hpp"

namespace headrace::test {

inline constexpr std::array kDsaOpcodes{dsa::Opcode::noop,
                                        dsa::Opcode::batch,
                                        dsa::Opcode::drain,
                                        dsa::Opcode::move,
                                        dsa::Opcode::fill,
                                        dsa::Opcode::compare,
                                        dsa::Opcode::compare_pattern,
                                        dsa::Opcode::create_delta,
                                        dsa::Opcode::apply_delta,
                                        dsa::Opcode::dualcast,
                                        dsa::Opcode::crc,
                                        dsa::Opcode::copy_crc,
                                        dsa::Opcode::dif_check,
                                        dsa::Opcode::dif_insert,
                                        dsa::Opcode::dif_strip,
                                        dsa::Opcode::dif_update,
                                        dsa::Opcode::cache_flush};

}  // namespace headrace::test
