# SPDX-License-Identifier: Apache-2.0
"""The machines that guests believe they run on, as arguments of QEMU.

Bandwidth and latency are what the firmware of such a machine declares (HMAT); the memory itself is
equally fast everywhere. Figures as on a Xeon Max 9480 in SNC4 and flat mode.
"""

from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20


@dataclass(frozen=True)
class Tiles:
    """Sockets of tiles; each tile has one node of processors with DDR and one of HBM without.

    With t tiles in all, nodes 0 to t-1 are the DDR and node n+t is the HBM of node n.
    """

    name: str
    socket_count: int
    tiles_per_socket: int
    ddr_mib: int = 256
    hbm_mib: int = 64

    @property
    def tile_count(self) -> int:
        """Tiles of all sockets, each with one processor."""
        return self.socket_count * self.tiles_per_socket

    @property
    def node_count(self) -> int:
        """Nodes of all tiles."""
        return 2 * self.tile_count

    def arguments(self) -> list[str]:
        """What QEMU is to be told."""
        tiles, nodes = self.tile_count, self.node_count
        sockets = f"sockets={self.socket_count},dies={self.tiles_per_socket}"
        words = ["-machine", "q35,hmat=on", "-m", f"{tiles * (self.ddr_mib + self.hbm_mib)}M"]
        words += ["-smp", f"{tiles},{sockets},cores=1,threads=1"]
        for node in range(nodes):
            mib = self.ddr_mib if node < tiles else self.hbm_mib
            words += ["-object", f"memory-backend-ram,id=m{node},size={mib}M"]
            words += ["-numa", f"node,nodeid={node},memdev=m{node},initiator={node % tiles}"]
        for node in range(tiles):
            socket, die = divmod(node, self.tiles_per_socket)
            die_text = f",die-id={die}" if self.tiles_per_socket > 1 else ""
            words += ["-numa", f"cpu,node-id={node},socket-id={socket}{die_text}"]
        for source in range(nodes):
            for target in range(nodes):
                if source != target:
                    distance = self.distance(source, target)
                    words += ["-numa", f"dist,src={source},dst={target},val={distance}"]
        for initiator in range(tiles):
            for target in range(nodes):
                pair = f"hmat-lb,initiator={initiator},target={target},hierarchy=memory"
                latency = f"data-type=access-latency,latency={self.latency_ns(initiator, target)}"
                gib_per_s = self.gib_per_s(initiator, target)
                bandwidth = f"data-type=access-bandwidth,bandwidth={gib_per_s}G"
                words += ["-numa", f"{pair},{latency}", "-numa", f"{pair},{bandwidth}"]
        return words

    def distance(self, source: int, target: int) -> int:
        """What the firmware says of two nodes; 10 is the node itself."""
        tiles = self.tile_count
        if source == target:
            return 10
        if source % tiles == target % tiles:
            return 13
        with_hbm = source >= tiles or target >= tiles
        if self._same_socket(source, target):
            return 14 if with_hbm else 12
        return 23 if with_hbm else 21

    def latency_ns(self, initiator: int, target: int) -> int:
        """Of a read."""
        local = initiator == target % self.tile_count
        base = 115 if local else 125 if self._same_socket(initiator, target) else 200
        return base + (20 if target >= self.tile_count else 0)

    def gib_per_s(self, initiator: int, target: int) -> int:
        """Of reads and writes."""
        if initiator == target % self.tile_count:
            return 200 if target >= self.tile_count else 70
        if self._same_socket(initiator, target):
            return 150 if target >= self.tile_count else 60
        return 40

    def _same_socket(self, one: int, other: int) -> bool:
        def socket(node: int) -> int:
            return node % self.tile_count // self.tiles_per_socket

        return socket(one) == socket(other)


FOUR_NODES = Tiles("four-nodes", socket_count=2, tiles_per_socket=1)
SIXTEEN_NODES = Tiles("sixteen-nodes", socket_count=2, tiles_per_socket=4)


@dataclass(frozen=True)
class Dimms:
    """Two processors, and persistent DIMMs that are files: what is in them survives the machine.

    The n-th file is the DIMM with handle n+1 in the firmware's tables, by which a guest finds it.
    """

    files: dict[Path, int]
    """Bytes of each."""

    def arguments(self) -> list[str]:
        """What QEMU is to be told; makes the files that are not there."""
        words = ["-machine", "q35,nvdimm=on,nvdimm-persistence=mem-ctrl", "-smp", "2"]
        words += ["-m", "512M,slots=4,maxmem=4G"]
        for number, (path, byte_count) in enumerate(self.files.items()):
            if not path.exists():
                with path.open("wb") as file:
                    file.truncate(byte_count)
            backend = f"memory-backend-file,id=m{number},share=on,mem-path={path},size={byte_count}"
            words += ["-object", backend, "-device", f"nvdimm,id=n{number},memdev=m{number}"]
        return words
