# SPDX-License-Identifier: Apache-2.0
# Layers of the library. The include path of a layer has only its headers and those of the layers it
# depends on, so an include in the wrong direction does not compile.

# A layer may depend only on layers to its left.
set(HEADRACE_LAYER_ORDER base platform telemetry topo copy dsa engine cache query pmem message store c)

# headrace_layer(NAME [DEPENDS layer...] SOURCES file... [LIBRARIES private-library...])
function(headrace_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 ARG "" "" "DEPENDS;SOURCES;LIBRARIES")
  list(FIND HEADRACE_LAYER_ORDER ${name} own_index)
  if(own_index EQUAL -1)
    message(FATAL_ERROR "'${name}' is no layer: add it to HEADRACE_LAYER_ORDER (cmake/HeadraceLayer.cmake)")
  endif()
  set(stage "${PROJECT_BINARY_DIR}/layers/${name}")
  file(MAKE_DIRECTORY "${stage}/headrace")
  if(EXISTS "${PROJECT_SOURCE_DIR}/include/headrace/${name}")
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/include/headrace/${name}" "${stage}/headrace/${name}" SYMBOLIC)
  else()
    # Internal layer: its headers are beside its sources and are not installed.
    file(CREATE_LINK "${PROJECT_SOURCE_DIR}/src/${name}" "${stage}/headrace/${name}" SYMBOLIC)
  endif()
  set(target headrace_${name})
  add_library(${target} OBJECT ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC "$<BUILD_INTERFACE:${stage}>")
  target_link_libraries(${target} PUBLIC tl::expected PRIVATE headrace_flags Threads::Threads ${ARG_LIBRARIES})
  target_compile_definitions(${target} PRIVATE HEADRACE_BUILDING=1)
  foreach(dependency IN LISTS ARG_DEPENDS)
    list(FIND HEADRACE_LAYER_ORDER ${dependency} dependency_index)
    if(dependency_index EQUAL -1 OR dependency_index GREATER_EQUAL own_index)
      message(FATAL_ERROR "layer '${name}' may not depend on '${dependency}': the order is ${HEADRACE_LAYER_ORDER}")
    endif()
    target_link_libraries(${target} PUBLIC headrace_${dependency})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY HEADRACE_LAYERS ${name})
  set_property(GLOBAL APPEND PROPERTY HEADRACE_PRIVATE_LIBRARIES ${ARG_LIBRARIES})
endfunction()
