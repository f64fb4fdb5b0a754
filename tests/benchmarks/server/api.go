package main

import (
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"crypto/sha512"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

var components = []string{"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}

var (
	shared    Counts // requests that are about no single node
	answers   = map[string]string{}
	mutable   sync.Mutex
	objects         = map[string]map[string]any{} // what can be written: kubeadm's ConfigMaps
	version   int64 = 1000
	bootID    string
	unknown   sync.Map
	gateLine  = regexp.MustCompile(`(?m)^(kubernetes_feature_enabled\{name="(\w+)",[^}]*\}) [01]$`)
	gateEntry = regexp.MustCompile(`^ +"?(\w+)"?: *(true|false)\s*$`)
)

// uid makes a UID of the given words: 32 hex digits, always the same.
func uid(words ...string) string { return fmt.Sprintf("%x", md5.Sum([]byte(strings.Join(words, "/")))) }

func dashed(hex string) string {
	return hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:]
}

func loadAnswers() {
	found, err := filepath.Glob(filepath.Join(config.Answers, "*"))
	check(err, "answers")
	for _, path := range found {
		data, err := os.ReadFile(path)
		check(err, path)
		name := filepath.Base(path)
		text := string(data)
		if strings.HasSuffix(name, ".json") {
			var value any
			check(json.Unmarshal(data, &value), path)
			short, err := json.Marshal(value)
			check(err, path)
			text = string(short)
		} else {
			text = padded(text)
		}
		answers[name] = text
	}
	for _, name := range []string{"kubeadm-config", "kubelet-config"} {
		var object map[string]any
		check(json.Unmarshal([]byte(strings.ReplaceAll(answers[name+".json"], "@ADDRESS@", first().Address)), &object), name)
		objects["/api/v1/namespaces/kube-system/configmaps/"+name] = object
	}
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	check(err, "boot_id")
	bootID = strings.TrimSpace(string(data))
}

// padded brings metrics to the size that was recorded, also compressed: what nobody reads is not kept, and still has to be sent, received,
// unpacked and skipped.
func padded(text string) string {
	firstLine, rest, _ := strings.Cut(text, "\n")
	var size, compressed int
	_, err := fmt.Sscanf(firstLine, "# bytes as recorded: %d compressed: %d", &size, &compressed)
	check(err, firstLine)
	made := rest
	for digits := 0; digits < 100 && len(zipped(made)) < compressed; digits += 4 {
		made = paddedWith(rest, size, digits)
	}
	return made
}

// paddedWith adds lines with so many digits that do not compress.
func paddedWith(text string, size, digits int) string {
	var made strings.Builder
	made.WriteString(text)
	for number := 0; made.Len() < size; number++ {
		random := fmt.Sprintf("%x%x", sha512.Sum512([]byte(strconv.Itoa(number))), number)
		fmt.Fprintf(&made, "apiserver_request_duration_seconds_bucket{component=\"apiserver\",dry_run=\"%s\",group=\"apps\",resource=\"r%d\",scope=\"resource\",subresource=\"\",verb=\"GET\",version=\"v1\",le=\"%g\"} %d\n",
			random[:digits], number/24, 0.005*float64(number%24+1), number)
	}
	return made.String()
}

func zipped(text string) string {
	var made bytes.Buffer
	pack, err := gzip.NewWriterLevel(&made, gzip.BestSpeed)
	check(err, "gzip")
	_, _ = io.WriteString(pack, text)
	check(pack.Close(), "gzip")
	return made.String()
}

// kubelet is what a host's running kubelet has read, and when it started.
type kubelet struct {
	started time.Time
	gates   map[string]bool
}

func (h *Host) kubelet() kubelet {
	path := filepath.Join(h.folder, "upper/run/bench/kubelet.config")
	found := kubelet{time.Now(), map[string]bool{}}
	if facts, err := os.Stat(path); err == nil {
		found.started = facts.ModTime()
	}
	data, _ := os.ReadFile(path)
	inside := false
	for _, line := range strings.Split(string(data), "\n") {
		if entry := gateEntry.FindStringSubmatch(line); inside && entry != nil {
			found.gates[entry[1]] = entry[2] == "true"
		} else if !strings.HasPrefix(line, " ") {
			inside = strings.HasPrefix(line, "featureGates:")
		}
	}
	words, _ := os.ReadFile(filepath.Join(h.folder, "upper/run/bench/kubelet.argv"))
	for _, word := range strings.Split(string(words), "\n") {
		if list, ok := strings.CutPrefix(word, "--feature-gates="); ok {
			for _, one := range strings.Split(list, ",") {
				name, value, _ := strings.Cut(one, "=")
				found.gates[name] = value == "true"
			}
		}
	}
	return found
}

func (h *Host) metrics(component string) string {
	text := answers[component+"-metrics.txt"]
	started := time.Now().Add(-time.Hour)
	if component == "kubelet" {
		running := h.kubelet()
		started = running.started
		if len(running.gates) > 0 {
			text = gateLine.ReplaceAllStringFunc(text, func(line string) string {
				parts := gateLine.FindStringSubmatch(line)
				if value, ok := running.gates[parts[2]]; ok {
					if value {
						return parts[1] + " 1"
					}
					return parts[1] + " 0"
				}
				return line
			})
		}
	}
	return strings.NewReplacer("@NAME@", h.Name, "@STARTED@", fmt.Sprintf("%.2f", float64(started.UnixMilli())/1000)).Replace(text)
}

func (h *Host) configz() string {
	var value map[string]map[string]any
	check(json.Unmarshal([]byte(answers["configz.json"]), &value), "configz.json")
	if gates := h.kubelet().gates; len(gates) > 0 {
		value["kubeletconfig"]["featureGates"] = gates
	}
	return string(must(json.Marshal(value)))
}

func must(data []byte, err error) []byte {
	check(err, "JSON")
	return data
}

func (h *Host) fill(text string, more ...string) string {
	pairs := append([]string{"@NAME@", h.Name, "@ADDRESS@", h.Address, "@NODEUID@", dashed(uid("node", h.Name))}, more...)
	return strings.NewReplacer(pairs...).Replace(text)
}

var (
	bootIDField    = regexp.MustCompile(`"bootID":"[^"]*"`)
	heartbeatField = regexp.MustCompile(`"lastHeartbeatTime":"[^"]*"`)
)

func (h *Host) node() string {
	text := h.fill(answers["node-"+h.Role+".json"], "@UID@", dashed(uid("node", h.Name)))
	text = bootIDField.ReplaceAllString(text, `"bootID":"`+bootID+`"`)
	// As a kubelet: once it is ready, and every five minutes from then on (nodeStatusReportFrequency).
	beat := h.kubelet().started.Add(2 * time.Second)
	if late := time.Since(beat); late > 0 {
		beat = beat.Add(late.Truncate(5 * time.Minute))
	}
	return heartbeatField.ReplaceAllString(text, `"lastHeartbeatTime":"`+beat.UTC().Format(time.RFC3339)+`"`)
}

func (h *Host) lease() string {
	started := h.kubelet().started
	// As a kubelet: at its start, and every 10 s from then on.
	renewed := started.Add(time.Since(started).Truncate(10 * time.Second))
	return h.fill(answers["lease.json"], "@UID@", dashed(uid("lease", h.Name)), "@RENEWED@", renewed.UTC().Format("2006-01-02T15:04:05.000000Z"))
}

func (h *Host) pods() (found []string) {
	if h.Role == "control-plane" {
		for _, component := range components {
			found = append(found, h.fill(answers["pod-"+component+".json"],
				"@HASH@", uid(h.Name, component), "@UID@", dashed(uid("pod", h.Name, component))))
		}
		return
	}
	for number := 0; number < config.Pods; number++ {
		app := fmt.Sprintf("app%d", number)
		id := uid("pod", h.Name, app)
		found = append(found, h.fill(answers["pod-app.json"], "@UID@", dashed(id), "@APP@", app, "@POD@", app+"-7c5ddbdf54-"+id[:5],
			"@CONTAINER@", id+id, "@OWNER@", dashed(uid("replicaset", app))))
	}
	return
}

func list(kind, group string, items []string, after string) string {
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"1","continue":%q},"items":[%s]}`, kind, group, after,
		strings.Join(items, ","))
}

// page cuts what a list's limit and continue ask for.
func page(items []string, query url.Values) ([]string, string) {
	from, _ := strconv.Atoi(query.Get("continue"))
	limit, _ := strconv.Atoi(query.Get("limit"))
	if from > len(items) {
		from = len(items)
	}
	if limit == 0 || from+limit >= len(items) {
		return items[from:], ""
	}
	return items[from : from+limit], strconv.Itoa(from + limit)
}

// serve listens at the ports of the control plane on this host. Addresses of other nodes are local in its namespace, too.
func (h *Host) serve() {
	count := func() { h.counts.handshakes.Add(1) }
	h.https(":6443", serverOf[h.Name].serving(authority, count), h.api)
	h.https("127.0.0.1:10257", selfSigned.serving(authority, count), h.component("kube-controller-manager"))
	h.https("127.0.0.1:10259", selfSigned.serving(authority, count), h.component("kube-scheduler"))
	h.https(":2379", etcdServerOf[h.Name].serving(etcdAuthority, count), h.etcd)
}

func (h *Host) https(address string, secure *tls.Config, handler http.HandlerFunc) {
	listener, err := h.listen(address)
	check(err, h.Name+" "+address)
	packing := func(w http.ResponseWriter, r *http.Request) {
		handler(&answer{w, strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"), strings.HasSuffix(r.URL.Path, "/metrics")}, r)
	}
	server := &http.Server{Handler: http.HandlerFunc(packing), ErrorLog: log.New(io.Discard, "", 0), ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			h.counts.tlsConnections.Add(1)
		}
	}}
	go func() { log.Print(server.Serve(tls.NewListener(listener, secure))) }()
}

func (h *Host) component(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz" || r.URL.Path == "/livez" || r.URL.Path == "/readyz":
			say(w, &h.counts, "ok")
		case r.URL.Path == "/metrics" && len(r.TLS.PeerCertificates) > 0:
			say(w, &h.counts, h.metrics(name))
		default:
			http.Error(w, "Forbidden", http.StatusForbidden)
		}
	}
}

// The address at which etcd is asked says which member it is.
func (h *Host) etcd(w http.ResponseWriter, r *http.Request) {
	address, _, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	var members []string
	own := h
	for _, one := range config.Hosts {
		if one.Role != "control-plane" {
			continue
		}
		if one.Address == address {
			own = one
		}
		members = append(members, fmt.Sprintf(`{"ID":"%d","name":%q,"peerURLs":["https://%s:2380"],"clientURLs":["https://%s:2379"]}`,
			one.member(), one.Name, one.Address, one.Address))
	}
	if r.URL.Path == "/health" {
		say(w, &h.counts, `{"health":"true","reason":""}`)
		return
	}
	say(w, &h.counts, fmt.Sprintf(`{"header":{"cluster_id":"1","member_id":"%d","raft_term":"3"},"members":[%s]}`, own.member(), strings.Join(members, ",")))
}

func (h *Host) member() int64 {
	number, _ := strconv.ParseInt(uid("member", h.Name)[:15], 16, 64)
	return number
}

// answer is a ResponseWriter that knows what the request accepts.
type answer struct {
	http.ResponseWriter
	packs   bool
	metrics bool
}

// As the real ones: metrics are compressed (promhttp), other answers above 128 KiB (apiserver's responsewriters, defaultGzipThresholdBytes).
func say(w http.ResponseWriter, counts *Counts, text string) {
	if to, ok := w.(*answer); ok && to.packs && (to.metrics || len(text) > 128<<10) {
		text = zipped(text)
		w.Header().Set("Content-Encoding", "gzip")
	}
	counts.requests.Add(1)
	counts.answered.Add(int64(len(text)))
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	_, _ = io.WriteString(w, text)
}

func (h *Host) api(w http.ResponseWriter, r *http.Request) {
	path, query := r.URL.Path, r.URL.Query()
	if path == "/readyz" || path == "/livez" || path == "/healthz" {
		say(w, &shared, "ok")
		return
	}
	if path != "/version" && len(r.TLS.PeerCertificates) == 0 {
		status(w, http.StatusForbidden, "forbidden")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	words := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case path == "/version":
		say(w, &shared, answers["version.json"])
	case path == "/metrics":
		say(w, &h.counts, h.metrics("kube-apiserver"))
	case path == "/api/v1/nodes":
		items, after := page(every(func(one *Host) []string { return []string{one.node()} }), query)
		say(w, &shared, list("NodeList", "v1", items, after))
	case strings.HasPrefix(path, "/api/v1/nodes/"):
		if one := hosts[words[3]]; one != nil {
			one.ofNode(w, strings.Join(words[4:], "/"), path)
		} else {
			status(w, http.StatusNotFound, path)
		}
	case path == "/api/v1/pods":
		if name, ok := strings.CutPrefix(query.Get("fieldSelector"), "spec.nodeName="); ok {
			if one := hosts[name]; one != nil {
				say(w, &one.counts, list("PodList", "v1", one.pods(), ""))
				return
			}
		}
		items, after := page(every((*Host).pods), query)
		say(w, &shared, list("PodList", "v1", items, after))
	case strings.HasPrefix(path, "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"):
		if one := hosts[words[len(words)-1]]; one != nil {
			say(w, &one.counts, one.lease())
			return
		}
		items, after := page(every(func(one *Host) []string { return []string{one.lease()} }), query)
		say(w, &shared, list("LeaseList", "coordination.k8s.io/v1", items, after))
	case path == "/apis/scheduling.k8s.io/v1/priorityclasses":
		say(w, &shared, answers["priorityclasses.json"])
	case path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices":
		say(w, &shared, h.endpoints())
	case objects[path] != nil:
		h.object(w, r, path)
	case strings.HasPrefix(path, "/api") && r.Method == http.MethodGet && plural.MatchString(words[len(words)-1]):
		if _, seen := unknown.LoadOrStore(path, true); !seen {
			log.Printf("an empty list is the answer to %s", path)
		}
		say(w, &shared, list("List", "v1", nil, ""))
	default:
		if _, seen := unknown.LoadOrStore(r.Method+path, true); !seen {
			log.Printf("not known: %s %s", r.Method, path)
		}
		status(w, http.StatusNotFound, path)
	}
}

var plural = regexp.MustCompile(`^[a-z]+s$`)

func (h *Host) ofNode(w http.ResponseWriter, what, path string) {
	switch what {
	case "":
		say(w, &h.counts, h.node())
	case "proxy/configz":
		say(w, &h.counts, h.configz())
	case "proxy/metrics":
		say(w, &h.counts, h.metrics("kubelet"))
	case "proxy/stats/summary":
		say(w, &h.counts, h.fill(answers["summary.json"]))
	case "proxy/healthz":
		say(w, &h.counts, "ok")
	default:
		log.Printf("not known: %s", path)
		status(w, http.StatusNotFound, path)
	}
}

func (h *Host) endpoints() string {
	var value map[string]any
	check(json.Unmarshal([]byte(answers["endpointslices.json"]), &value), "endpointslices.json")
	var endpoints []any
	for _, one := range config.Hosts {
		if one.Role == "control-plane" {
			endpoints = append(endpoints, map[string]any{"addresses": []string{one.Address}, "conditions": map[string]bool{"ready": true}})
		}
	}
	value["items"].([]any)[0].(map[string]any)["endpoints"] = endpoints
	return string(must(json.Marshal(value)))
}

// object serves a ConfigMap that can be patched. Fields that a patch names replace those that were there.
func (h *Host) object(w http.ResponseWriter, r *http.Request, path string) {
	mutable.Lock()
	defer mutable.Unlock()
	found := objects[path]
	if r.Method == http.MethodPatch {
		var changes map[string]any
		if err := json.NewDecoder(r.Body).Decode(&changes); err != nil {
			status(w, http.StatusBadRequest, err.Error())
			return
		}
		merged := merge(found, changes)
		meta := merge(merged["metadata"].(map[string]any), nil)
		managers, _ := meta["managedFields"].([]any)
		meta["managedFields"] = append(append([]any(nil), managers...), map[string]any{"manager": r.URL.Query().Get("fieldManager"), "operation": "Apply"})
		merged["metadata"] = meta
		if r.URL.Query().Get("dryRun") == "" {
			merged["metadata"].(map[string]any)["resourceVersion"] = strconv.FormatInt(atomic.AddInt64(&version, 1), 10)
			objects[path] = merged
		}
		found = merged
	}
	say(w, &shared, string(must(json.Marshal(found))))
}

func merge(old, changes map[string]any) map[string]any {
	made := map[string]any{}
	for key, value := range old {
		made[key] = value
	}
	for key, value := range changes {
		inner, ok := value.(map[string]any)
		before, both := made[key].(map[string]any)
		switch {
		case value == nil:
			delete(made, key)
		case ok && both:
			made[key] = merge(before, inner)
		default:
			made[key] = value
		}
	}
	return made
}

func every(of func(*Host) []string) (items []string) {
	sorted := append([]*Host(nil), config.Hosts...)
	sort.Slice(sorted, func(a, b int) bool { return sorted[a].Name < sorted[b].Name })
	for _, one := range sorted {
		items = append(items, of(one)...)
	}
	return
}

func status(w http.ResponseWriter, code int, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q,"code":%d}`, message,
		strings.ReplaceAll(http.StatusText(code), " ", ""), code)
}
