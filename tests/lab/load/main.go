// The lab's load server: it uses as much CPU and memory as it is asked to, so that tests know the truth that a controller only measures.
//
// Asked by its arguments, and later by POST /set?cpu=300&memory=100 (what is not named stays):
//
//	cpu     thousandths of a core, at most 1000
//	burst   thousandths of a core instead, in the first `for` seconds of every `every` seconds
//	memory  MiB that are held
//	leak    MiB a second that are held more and more
//	metric  the value of load_metric
//
// GET /metrics has load_metric, and what it was asked to use, in Prometheus' text format; GET /healthz is 200.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	mib  = 1 << 20
	tick = 20 * time.Millisecond
	// What a busy machine did not give is not asked for later: it would look like a burst.
	mostDebt = 2 * tick
)

var (
	mutex  sync.Mutex
	names  = []string{"cpu", "burst", "every", "for", "memory", "leak", "metric"}
	values = map[string]*float64{}
	held   [][]byte
)

func get(name string) float64 {
	mutex.Lock()
	defer mutex.Unlock()
	return *values[name]
}

func usedCPU() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		log.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// burn keeps the CPU time of the whole process at what it was asked to be, measured by the kernel.
func burn(started time.Time) {
	owed, last, used := time.Duration(0), time.Now(), usedCPU()
	for {
		rate := get("cpu")
		if every := get("every"); every > 0 {
			passed := time.Since(started).Seconds()
			if passed-float64(int(passed/every))*every < get("for") {
				rate = get("burst")
			}
		}
		now, spent := time.Now(), usedCPU()
		owed += time.Duration(rate/1000*float64(now.Sub(last))) - (spent - used)
		last, used = now, spent
		if owed > mostDebt {
			owed = mostDebt
		} else if owed < -mostDebt {
			owed = -mostDebt
		}
		if owed <= 0 {
			time.Sleep(tick)
			continue
		}
		end := spent + owed
		for usedCPU() < end && time.Since(now) < tick {
			x := 1.0
			for i := 0; i < 20000; i++ {
				x = x*1.0000001 + 1e-9
			}
			_ = x
		}
	}
}

// hold maps a piece of memory and writes to each of its pages.
func hold(size int) {
	piece, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		log.Fatal(err)
	}
	for i := 0; i < size; i += 4096 {
		piece[i] = 1
	}
	held = append(held, piece)
}

func keepMemory(started time.Time) {
	leaked, last := 0.0, started
	for {
		now := time.Now()
		leaked += get("leak") * now.Sub(last).Seconds()
		last = now
		wanted := int(get("memory") + leaked)
		for len(held) < wanted {
			hold(mib)
		}
		for len(held) > wanted {
			if err := syscall.Munmap(held[len(held)-1]); err != nil {
				log.Fatal(err)
			}
			held = held[:len(held)-1]
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func set(answer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(answer, "POST /set?cpu=300", http.StatusMethodNotAllowed)
		return
	}
	mutex.Lock()
	defer mutex.Unlock()
	for name, given := range request.URL.Query() {
		number, err := strconv.ParseFloat(given[0], 64)
		if values[name] == nil || err != nil || number < 0 {
			http.Error(answer, fmt.Sprintf("%s=%q: the names are %v, the values numbers", name, given[0], names), http.StatusBadRequest)
			return
		}
	}
	for name, given := range request.URL.Query() {
		*values[name], _ = strconv.ParseFloat(given[0], 64)
	}
	fmt.Fprintln(answer, "ok")
}

func metrics(answer http.ResponseWriter, _ *http.Request) {
	answer.Header().Set("Content-Type", "text/plain; version=0.0.4")
	fmt.Fprintf(answer, "# TYPE load_metric gauge\nload_metric %g\n", get("metric"))
	for _, name := range names {
		if name != "metric" {
			fmt.Fprintf(answer, "# TYPE load_asked_%s gauge\nload_asked_%s %g\n", name, name, get(name))
		}
	}
}

func main() {
	debug.SetGCPercent(20)
	for _, name := range names {
		values[name] = flag.Float64(name, 0, "see the top of main.go")
	}
	address := flag.String("listen", ":8080", "address and port")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	go func() { <-stop; os.Exit(0) }()
	started := time.Now()
	// At most one core: a second one would need a second thread.
	go burn(started)
	go keepMemory(started)
	http.HandleFunc("/set", set)
	http.HandleFunc("/metrics", metrics)
	http.HandleFunc("/healthz", func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(answer, "ok") })
	log.Fatal(http.ListenAndServe(*address, nil))
}
