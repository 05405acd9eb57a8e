// SPDX-License-Identifier: Apache-2.0
// Compares shares of random flows over random links with SimGrid's CM02 model without its TCP
// corrections. SimGrid has only weights of 1, one engine per process, and a clock of 1e-9 s; one
// SimGrid second is a microsecond here.
#include <gtest/gtest.h>
#include <simgrid/s4u.hpp>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "sim/fluid.hpp"

namespace headrace::sim {
namespace {

namespace s4u = simgrid::s4u;

TEST(SimGrid, SharesFlowsAsWeDo) {
  const char* const seed_text = std::getenv("HEADRACE_SEED");
  const unsigned seed = seed_text == nullptr ? 18 : static_cast<unsigned>(std::atoi(seed_text));
  SCOPED_TRACE("HEADRACE_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  const auto draw = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };

  std::vector<std::string> texts{"test",
                                 "--log=root.thres:error",
                                 "--cfg=network/model:CM02",
                                 "--cfg=network/bandwidth-factor:1",
                                 "--cfg=network/latency-factor:1",
                                 "--cfg=network/TCP-gamma:0",
                                 "--cfg=network/crosstraffic:0"};
  std::vector<char*> arguments;
  for (std::string& text : texts) arguments.push_back(text.data());
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  s4u::Engine engine(&count, arguments.data());
#ifdef XBT_ATTRIB_DEPRECATED_v401  // SimGrid 4, whose version.h needs other headers first.
  auto* const zone = engine.get_netzone_root()->add_netzone_full("zone");
#else
  auto* const zone = s4u::create_full_zone("zone");
#endif

  constexpr int kLinks = 6;
  constexpr int kFlows = 24;
  Fluid fluid;
  std::vector<s4u::Link*> links;
  std::vector<ResourceIndex> resources;
  for (int i = 0; i < kLinks; ++i) {
    const int rate = draw(1, 100);
    links.push_back(
        zone->create_link("link" + std::to_string(i), rate * 1e3)->set_latency(0)->seal());
    resources.push_back(fluid.add("link", rate));
  }
  std::vector<double> ours(kFlows);
  std::vector<double> theirs(kFlows);
  for (int i = 0; i < kFlows; ++i) {
    auto* const from = zone->create_host("from" + std::to_string(i), 1e9)->seal();
    auto* const to = zone->create_host("to" + std::to_string(i), 1e9)->seal();
    std::vector<s4u::LinkInRoute> route;
    std::vector<Use> uses;
    for (int link = 0; link < kLinks; ++link) {
      if (draw(0, 2) != 0 && !(link == kLinks - 1 && route.empty())) continue;
      route.emplace_back(links[static_cast<std::size_t>(link)]);
      uses.push_back({resources[static_cast<std::size_t>(link)], 1});
    }
    zone->add_route(from->get_netpoint(), to->get_netpoint(), nullptr, nullptr, route, false);
    const int bytes = draw(1'000, 1'000'000);
    const auto index = static_cast<std::size_t>(i);
    fluid.carry(bytes, uses, [&, index] { ours[index] = fluid.now_ns(); });
    const std::string box = "box" + std::to_string(i);
    s4u::Actor::create("sender", from, [box, bytes] {
      static int token = 0;
      s4u::Mailbox::by_name(box)->put(&token, static_cast<std::uint64_t>(bytes));
    });
    s4u::Actor::create("receiver", to, [&, box, index] {
      s4u::Mailbox::by_name(box)->get<int>();
      theirs[index] = s4u::Engine::get_clock() * 1e3;
    });
  }
  zone->seal();
  engine.run();
  fluid.run();
  for (std::size_t i = 0; i < kFlows; ++i) {
    EXPECT_NEAR(ours[i], theirs[i], theirs[i] * 1e-4) << "flow " << i;
  }
}

}  // namespace
}  // namespace headrace::sim
