"""The WAN between the two clusters' nodes: delay, jitter, rate, queue, loss, partitions and port filters.

line.py      what the line is like, and the shaping of one direction: pure, no clock, no sockets
packets.py   ports of a packet, and which packets a filter lets through: pure
tun.py       userspace backend: two TUN devices, for kernels without netem
netem.py     kernel backend: a veth pair with netem and nftables
server.py    the process that holds a line and answers its control socket
client.py    the other end of the control socket
"""
