// The world of the benchmark: it starts the simulated hosts, relays SSH to them with an added delay, and answers for their kubelets,
// API servers and etcd. It runs in a mount namespace of its own. All that it makes is gone when it ends.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Config is what the caller wants: written by tests/benchmarks/world.py.
type Config struct {
	State     string   `json:"state"`     // folder: world/ is mounted here, control.sock and ready.json are made here
	Layers    []string `json:"layers"`    // read-only folders below each host's disk, the uppermost first
	Templates string   `json:"templates"` // manifests of a control-plane node
	Answers   string   `json:"answers"`
	Init      string   `json:"init"` // process 1 of a host
	Pods      int      `json:"pods"` // on each worker
	Hosts     []*Host  `json:"hosts"`
}

// Host is one simulated machine.
type Host struct {
	Name    string `json:"name"`
	Role    string `json:"role"`    // control-plane or worker
	Address string `json:"address"` // as a node, in the namespaces
	Listen  string `json:"listen"`  // where the controller reaches its sshd

	folder string
	pid    int
	counts Counts
}

var (
	config   Config
	ownNetns int
	hosts    = map[string]*Host{}
)

func check(err error, what string) {
	if err != nil {
		log.Fatalf("%s: %v", what, err)
	}
}

func setns(fd int) error {
	const sysSetns = 308 // amd64
	number := uintptr(sysSetns)
	if runtime.GOARCH == "arm64" {
		number = 268
	}
	if _, _, errno := syscall.RawSyscall(number, uintptr(fd), syscall.CLONE_NEWNET, 0); errno != 0 {
		return errno
	}
	return nil
}

// within runs f on a thread that is in the host's network namespace: sockets stay where they were made.
func (h *Host) within(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// Not kept open: one process may have only so many files.
	netns, err := syscall.Open(fmt.Sprintf("/proc/%d/ns/net", h.pid), syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	err = setns(netns)
	syscall.Close(netns)
	if err != nil {
		return err
	}
	err = f()
	check(setns(ownNetns), "back to the own network namespace")
	return err
}

func (h *Host) listen(address string) (found net.Listener, err error) {
	err = h.within(func() error {
		found, err = net.Listen("tcp4", address)
		return err
	})
	return
}

// dial opens a connection to the host's own sshd.
func (h *Host) dial() (net.Conn, error) {
	var fd int
	err := h.within(func() (err error) {
		fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, err
	}
	// On loopback this does not wait.
	if err = syscall.Connect(fd, &syscall.SockaddrInet4{Port: 22, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "ssh")
	defer file.Close()
	return net.FileConn(file)
}

func (h *Host) write(path, text string, mode os.FileMode) {
	whole := filepath.Join(h.folder, "upper", path)
	check(os.MkdirAll(filepath.Dir(whole), 0o755), whole)
	check(os.WriteFile(whole, []byte(text), mode), whole)
	check(os.Chmod(whole, mode), whole)
}

// prepare writes what is this host's own.
func (h *Host) prepare() {
	h.folder = filepath.Join(config.State, "world", h.Name)
	for _, name := range []string{"upper", "work", "root"} {
		check(os.MkdirAll(filepath.Join(h.folder, name), 0o755), h.folder)
	}
	h.write("etc/hostname", h.Name+"\n", 0o644)
	h.write("etc/hosts", "127.0.0.1 localhost\n"+h.Address+" "+h.Name+"\n", 0o644)
	h.write("run/bench/units/.keep", "", 0o600)
	h.write("etc/kubernetes/kubelet.conf", kubeconfig(first().Address, "default-auth", "", ""), 0o600)
	if h.Role != "control-plane" {
		return
	}
	for _, component := range components {
		data, err := os.ReadFile(filepath.Join(config.Templates, component+".yaml"))
		check(err, component)
		text := strings.NewReplacer("@NAME@", h.Name, "@ADDRESS@", h.Address).Replace(string(data))
		h.write("etc/kubernetes/manifests/"+component+".yaml", text, 0o600)
		h.write("etc/kubernetes/manifests/"+component+".yaml.uid", uid(h.Name, component)[:32], 0o600)
	}
	writePKI(h)
}

// start makes the host's namespaces and its process 1. Always on the same thread: hosts end with the thread that started them.
func (h *Host) start() error {
	words := []string{"bench-init", h.Name, h.Address, "255.255.0.0", strings.Join(config.Layers, ":"),
		filepath.Join(h.folder, "upper"), filepath.Join(h.folder, "work"), filepath.Join(h.folder, "root")}
	var err error
	// os/exec would keep a file and a thread for each host.
	h.pid, err = syscall.ForkExec(config.Init, words, &syscall.ProcAttr{
		Env:   os.Environ(),
		Files: []uintptr{0, 2, 2}, // the caller's standard input is /dev/null
		Sys: &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC | syscall.CLONE_NEWNET,
			Pdeathsig:  syscall.SIGKILL,
		},
	})
	return err
}

// reap waits for all hosts, and says which one has ended.
func reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil && err != syscall.EINTR {
			return
		}
		for _, host := range config.Hosts {
			if host.pid == pid {
				log.Printf("%s ended with status %d", host.Name, status)
			}
		}
	}
}

// ready waits until the host's sshd answers.
func (h *Host) ready() error {
	for until := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		connection, err := h.dial()
		if err == nil {
			buffer := make([]byte, 4)
			_ = connection.SetReadDeadline(time.Now().Add(10 * time.Second))
			_, err = connection.Read(buffer)
			connection.Close()
			if err == nil {
				return nil
			}
		}
		if time.Now().After(until) {
			return fmt.Errorf("%s: its sshd does not answer: %w", h.Name, err)
		}
	}
}

// setMode says what becomes of the commands of SSH sessions: "record NAME", "play NAME", or "" to run them. A host's files are changed through
// its own root: its overlay does not notice what is written below it.
func (h *Host) setMode(mode string) error {
	folder := fmt.Sprintf("/proc/%d/root/run/bench/", h.pid)
	if err := os.WriteFile(folder+"sequence", []byte("0\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(folder+"mode", []byte(mode), 0o600)
}

func first() *Host { return config.Hosts[0] }

func main() {
	log.SetFlags(log.Ltime)
	data, err := os.ReadFile(os.Args[1])
	check(err, "the configuration")
	check(json.Unmarshal(data, &config), "the configuration")
	for _, host := range config.Hosts {
		hosts[host.Name] = host
	}
	ownNetns, err = syscall.Open("/proc/self/ns/net", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	check(err, "the own network namespace")
	world := filepath.Join(config.State, "world")
	check(os.MkdirAll(world, 0o755), world)
	check(syscall.Mount("bench", world, "tmpfs", 0, "mode=755"), "a tmpfs for the hosts' disks")
	makeAuthorities()
	loadAnswers()
	for _, host := range config.Hosts {
		host.prepare()
	}

	started := make(chan *Host)
	go func() {
		runtime.LockOSThread() // for good
		for number, host := range config.Hosts {
			check(host.start(), host.Name)
			started <- host
			if number%4 == 3 {
				time.Sleep(time.Millisecond)
			}
		}
		close(started)
		select {}
	}()
	var wait sync.WaitGroup
	slots := make(chan bool, 8)
	up := 0
	for host := range started {
		if host.Role == "control-plane" {
			host.serve()
		}
		host.relay()
		slots <- true
		wait.Add(1)
		up++
		if up%100 == 0 {
			log.Printf("%d of %d hosts started", up, len(config.Hosts))
		}
		go func(host *Host) {
			defer wait.Done()
			check(host.ready(), host.Name)
			<-slots
		}(host)
	}
	wait.Wait()
	go reap()
	control()
	check(os.WriteFile(filepath.Join(config.State, "ready"), []byte(fmt.Sprintln(os.Getpid())), 0o644), "ready")
	log.Printf("%d hosts are up", len(config.Hosts))
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
}

// control serves the caller at a socket: GET /counts, POST /reset, POST /delay?ms=N (round trip), POST /mode?mode=...
func control() {
	path := filepath.Join(config.State, "control.sock")
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	check(err, path)
	mux := http.NewServeMux()
	mux.HandleFunc("/counts", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(allCounts()) })
	mux.HandleFunc("/reset", func(http.ResponseWriter, *http.Request) { resetCounts() })
	mux.HandleFunc("/delay", func(w http.ResponseWriter, r *http.Request) {
		rtt, err := time.ParseDuration(r.FormValue("ms") + "ms")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		halfDelay.Store(int64(rtt / 2))
	})
	mux.HandleFunc("/mode", func(w http.ResponseWriter, r *http.Request) {
		for _, host := range config.Hosts {
			if err := host.setMode(r.FormValue("mode")); err != nil {
				http.Error(w, host.Name+": "+err.Error(), http.StatusInternalServerError)
				return
			}
		}
	})
	go func() { log.Fatal(http.Serve(listener, mux)) }()
}
