// SPDX-License-Identifier: Apache-2.0
#include "headrace/base/error.hpp"

#include <system_error>

namespace headrace {

std::string_view name(Code code) {
  switch (code) {
    case Code::invalid_argument:
      return "invalid_argument";
    case Code::not_found:
      return "not_found";
    case Code::out_of_range:
      return "out_of_range";
    case Code::io_failed:
      return "io_failed";
    case Code::corrupt_data:
      return "corrupt_data";
    case Code::version_mismatch:
      return "version_mismatch";
    case Code::type_mismatch:
      return "type_mismatch";
    case Code::closed:
      return "closed";
    case Code::hardware_absent:
      return "hardware_absent";
    case Code::out_of_memory:
      return "out_of_memory";
    case Code::capacity_exceeded:
      return "capacity_exceeded";
    case Code::permission_denied:
      return "permission_denied";
    case Code::unsupported:
      return "unsupported";
  }
  return "unknown";
}

Scope scope(Code code) {
  switch (code) {
    case Code::invalid_argument:
    case Code::not_found:
    case Code::out_of_range:
      return Scope::call;
    case Code::io_failed:
    case Code::corrupt_data:
    case Code::version_mismatch:
    case Code::type_mismatch:
      return Scope::input;
    case Code::closed:
      return Scope::queue;
    case Code::hardware_absent:
    case Code::out_of_memory:
    case Code::capacity_exceeded:
      return Scope::device;
    case Code::permission_denied:
    case Code::unsupported:
      return Scope::process;
  }
  return Scope::process;
}

std::string Error::message() const {
  std::string text = "cannot " + tried + ": " + cause;
  if (os_errno != 0) {
    text += " (" + std::generic_category().message(os_errno) + ")";
  }
  if (!remedy.empty()) {
    text += "; " + remedy;
  }
  return text;
}

Error Error::within(std::string_view outer) const {
  Error seen = *this;
  seen.cause = "cannot " + tried + ": " + cause;
  seen.tried = outer;
  return seen;
}

}  // namespace headrace
