package main

import (
	"bytes"
	"io"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"
)

// halfDelay is what each direction of a connection is held back by, in nanoseconds.
var halfDelay atomic.Int64

// Counts are those of one host since the last reset.
type Counts struct {
	connections, sent, received atomic.Int64
	requests, answered          atomic.Int64 // API requests about this node, and bytes of the answers
	handshakes                  atomic.Int64 // TLS, at this host's own ports
	tlsConnections              atomic.Int64
	logged                      int64 // where sshd's log was at the reset
}

// Numbers is Counts as the caller gets them.
type Numbers struct {
	Connections int64 `json:"ssh_connections"`
	Sessions    int64 `json:"ssh_sessions"`
	Sent        int64 `json:"bytes_to_host"`
	Received    int64 `json:"bytes_from_host"`
	Requests    int64 `json:"api_requests"`
	Answered    int64 `json:"api_bytes"`
	Handshakes  int64 `json:"tls_handshakes"`
	Tunnels     int64 `json:"tls_connections"`
}

func (h *Host) sshdLog() string { return filepath.Join(h.folder, "upper/run/bench/sshd.log") }

func (h *Host) sessions() int64 {
	file, err := os.Open(h.sshdLog())
	if err != nil {
		return 0
	}
	defer file.Close()
	_, _ = file.Seek(h.counts.logged, io.SeekStart)
	data, _ := io.ReadAll(file)
	return int64(bytes.Count(data, []byte("Starting session: ")))
}

func allCounts() map[string]Numbers {
	found := map[string]Numbers{}
	for _, h := range config.Hosts {
		c := &h.counts
		found[h.Name] = Numbers{c.connections.Load(), h.sessions(), c.sent.Load(), c.received.Load(), c.requests.Load(), c.answered.Load(),
			c.handshakes.Load(), c.tlsConnections.Load()}
	}
	found["cluster"] = Numbers{Requests: shared.requests.Load(), Answered: shared.answered.Load()}
	return found
}

func resetCounts() {
	for _, c := range append([]*Counts{&shared}, countsOfHosts()...) {
		for _, one := range []*atomic.Int64{&c.connections, &c.sent, &c.received, &c.requests, &c.answered, &c.handshakes, &c.tlsConnections} {
			one.Store(0)
		}
	}
	for _, h := range config.Hosts {
		if facts, err := os.Stat(h.sshdLog()); err == nil {
			h.counts.logged = facts.Size()
		}
	}
}

func countsOfHosts() (found []*Counts) {
	for _, h := range config.Hosts {
		found = append(found, &h.counts)
	}
	return
}

// relay lets the controller reach the host's sshd, with the delay of a network in between.
func (h *Host) relay() {
	listener, err := net.Listen("tcp4", h.Listen+":22")
	check(err, h.Name)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				log.Printf("%s: %v", h.Name, err)
				return
			}
			go h.pass(connection)
		}
	}()
}

func (h *Host) pass(near net.Conn) {
	defer near.Close()
	h.counts.connections.Add(1)
	// The controller's connect() was answered on loopback at once: what a real one takes is waited for here.
	time.Sleep(time.Duration(2 * halfDelay.Load()))
	far, err := h.dial()
	if err != nil {
		log.Printf("%s: %v", h.Name, err)
		return
	}
	defer far.Close()
	done := make(chan bool)
	go func() {
		delayed(far, near, &h.counts.sent)
		done <- true
	}()
	delayed(near, far, &h.counts.received)
	<-done
}

type chunk struct {
	data []byte
	due  time.Time
}

// delayed copies until the end of one direction, each chunk held back by half of the round trip.
func delayed(to, from net.Conn, count *atomic.Int64) {
	queue := make(chan chunk, 1024)
	go func() {
		defer close(queue)
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				count.Add(int64(n))
				queue <- chunk{append([]byte(nil), buffer[:n]...), time.Now().Add(time.Duration(halfDelay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	for one := range queue {
		if left := time.Until(one.due); left > 0 {
			time.Sleep(left)
		}
		if _, err := to.Write(one.data); err != nil {
			from.Close()
			for range queue {
			}
			return
		}
	}
	if half, ok := to.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}
