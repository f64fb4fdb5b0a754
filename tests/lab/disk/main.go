// The lab's disk: a CSI driver whose volumes one node can have at a time, attached and detached for real.
//
// A volume is a folder of files. As long as no node uses it, the controller has its content; a node gets it when the volume is staged there,
// and gives it back when it is unstaged. So data follows a pod only if unmount, detach and attach happened in that order. A volume with
// "shared" in its name may be attached to several nodes, and its data does not follow.
//
//	disk controller --kubeconfig FILE --listen ADDRESS --attach 1s --detach 2s    what external-attacher and a storage array do
//	disk node --name NODE --store http://ADDRESS                                  the plugin of one kubelet
//
// On a node, a file /run/disk-busy makes each unmount fail, as a process does that still holds a file.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

const (
	driver    = "disk.lab.example"
	finalizer = "external-attacher/disk-lab-example"
	busy      = "/run/disk-busy"
	data      = "/var/lib/disk"
	kubelet   = "/var/lib/kubelet"
	lookAgain = 200 * time.Millisecond
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	flags := flag.NewFlagSet("disk", flag.ExitOnError)
	config := flags.String("kubeconfig", "/etc/kubernetes/admin.conf", "")
	listen := flags.String("listen", ":9808", "")
	attach := flags.Duration("attach", time.Second, "seconds that an attach takes")
	detach := flags.Duration("detach", 2*time.Second, "seconds that a detach takes")
	name := flags.String("name", "", "")
	store := flags.String("store", "", "")
	if len(os.Args) < 2 || flags.Parse(os.Args[2:]) != nil {
		log.Fatal("disk controller|node ...")
	}
	if os.Args[1] == "controller" {
		go serveStore(*listen)
		newAPI(*config).attachAndDetach(*attach, *detach)
	}
	serveNode(*name, *store)
}

// ---- the store: what volumes hold that no node has

type files map[string][]byte

func serveStore(listen string) {
	var mutex sync.Mutex
	volumes := map[string][]byte{}
	log.Fatal(http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mutex.Lock()
		defer mutex.Unlock()
		if r.Method == http.MethodPut {
			volumes[r.URL.Path], _ = io.ReadAll(r.Body)
			log.Printf("%s given back", r.URL.Path)
			return
		}
		if content, found := volumes[r.URL.Path]; found {
			w.Write(content)
		} else {
			io.WriteString(w, "{}")
		}
	})))
}

// ---- the controller

type attachment struct {
	Metadata struct {
		Name              string   `json:"name"`
		Finalizers        []string `json:"finalizers"`
		DeletionTimestamp string   `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Attacher string `json:"attacher"`
		NodeName string `json:"nodeName"`
		Source   struct {
			PersistentVolumeName string `json:"persistentVolumeName"`
		} `json:"source"`
	} `json:"spec"`
	Status struct {
		Attached bool `json:"attached"`
	} `json:"status"`
}

type api struct {
	client *http.Client
	server string
}

func newAPI(config string) *api {
	text, err := os.ReadFile(config)
	if err != nil {
		log.Fatal(err)
	}
	field := func(name string) string {
		found := regexp.MustCompile(`(?m)^\s*` + name + `:\s*(\S+)`).FindSubmatch(text)
		if found == nil {
			log.Fatalf("%s has no %s", config, name)
		}
		return string(found[1])
	}
	decoded := func(name string) []byte {
		found, err := base64.StdEncoding.DecodeString(field(name))
		if err != nil {
			log.Fatal(err)
		}
		return found
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(decoded("certificate-authority-data"))
	own, err := tls.X509KeyPair(decoded("client-certificate-data"), decoded("client-key-data"))
	if err != nil {
		log.Fatal(err)
	}
	trust := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{own}}
	return &api{&http.Client{Transport: &http.Transport{TLSClientConfig: trust}, Timeout: 10 * time.Second}, field("server")}
}

func (a *api) ask(method, path string, body any, answer any) error {
	sent, _ := json.Marshal(body)
	request, err := http.NewRequest(method, a.server+"/apis/storage.k8s.io/v1/volumeattachments"+path, bytes.NewReader(sent))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := a.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	if response.StatusCode >= 300 {
		return fmt.Errorf("%s %s: %s: %.200s", method, path, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// attachAndDetach does to VolumeAttachments what external-attacher does: a finalizer, then status.attached; at the end neither.
func (a *api) attachAndDetach(attach, detach time.Duration) {
	since := map[string]time.Time{}
	for ; ; time.Sleep(lookAgain) {
		var list struct{ Items []attachment }
		if err := a.ask(http.MethodGet, "", nil, &list); err != nil {
			log.Print(err)
			continue
		}
		on := map[string]string{}
		for _, one := range list.Items {
			if one.Status.Attached {
				on[one.Spec.Source.PersistentVolumeName] = one.Spec.NodeName
			}
		}
		for _, one := range list.Items {
			ending := one.Metadata.DeletionTimestamp != ""
			done := ending && len(one.Metadata.Finalizers) == 0 || !ending && one.Status.Attached
			if one.Spec.Attacher != driver || done {
				continue
			}
			key, takes := fmt.Sprint(one.Metadata.Name, ending), attach
			if ending {
				takes = detach
			}
			if _, begun := since[key]; !begun {
				since[key] = time.Now()
			}
			volume := one.Spec.Source.PersistentVolumeName
			if holder := on[volume]; !ending && holder != "" && holder != one.Spec.NodeName && !strings.Contains(volume, "shared") {
				log.Printf("FAULT: %s is attached to %s and asked for by %s", volume, holder, one.Spec.NodeName)
				continue
			}
			if time.Since(since[key]) < takes {
				continue
			}
			if err := a.finish(one, ending); err != nil {
				log.Print(err)
				continue
			}
			delete(since, key)
			log.Printf("%s: attached to %s: %t", volume, one.Spec.NodeName, !ending)
		}
	}
}

func (a *api) finish(one attachment, ending bool) error {
	attached := map[string]any{"status": map[string]any{"attached": !ending}}
	kept := []string{finalizer}
	if ending {
		kept = nil
	}
	finalizers := map[string]any{"metadata": map[string]any{"finalizers": kept}}
	path := "/" + one.Metadata.Name
	if ending {
		return errors.Join(a.ask(http.MethodPatch, path+"/status", attached, nil), a.ask(http.MethodPatch, path, finalizers, nil))
	}
	if err := a.ask(http.MethodPatch, path, finalizers, nil); err != nil {
		return err
	}
	return a.ask(http.MethodPatch, path+"/status", attached, nil)
}

// ---- the plugin of a node

type node struct {
	csi.UnimplementedNodeServer
	csi.UnimplementedIdentityServer
	registration.UnimplementedRegistrationServer
	name, store, socket string
}

func serveNode(name, store string) {
	folder := filepath.Join(kubelet, "plugins", driver)
	must(os.MkdirAll(folder, 0o750))
	one := &node{name: name, store: store, socket: filepath.Join(folder, "csi.sock")}
	plugin := grpc.NewServer()
	csi.RegisterIdentityServer(plugin, one)
	csi.RegisterNodeServer(plugin, one)
	go func() { must(plugin.Serve(listenOn(one.socket))) }()
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, one)
	must(registrar.Serve(listenOn(filepath.Join(kubelet, "plugins_registry", driver+"-reg.sock"))))
}

func listenOn(path string) net.Listener {
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	must(err)
	return listener
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func (n *node) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: driver, Endpoint: n.socket, SupportedVersions: []string{"1.0.0"}}, nil
}

func (n *node) NotifyRegistrationStatus(
	_ context.Context, told *registration.RegistrationStatus,
) (*registration.RegistrationStatusResponse, error) {
	log.Printf("registered: %t %s", told.PluginRegistered, told.Error)
	return &registration.RegistrationStatusResponse{}, nil
}

func (n *node) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: driver, VendorVersion: "1"}, nil
}

func (n *node) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	return &csi.GetPluginCapabilitiesResponse{}, nil
}

func (n *node) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

func (n *node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{NodeId: n.name, MaxVolumesPerNode: 16}, nil
}

func (n *node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	stage := &csi.NodeServiceCapability_RPC{Type: csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME}
	return &csi.NodeGetCapabilitiesResponse{
		Capabilities: []*csi.NodeServiceCapability{{Type: &csi.NodeServiceCapability_Rpc{Rpc: stage}}},
	}, nil
}

func (n *node) NodeStageVolume(_ context.Context, asked *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	own := filepath.Join(data, asked.VolumeId)
	if mounted(asked.StagingTargetPath) {
		return &csi.NodeStageVolumeResponse{}, nil
	}
	response, err := http.Get(n.store + "/" + asked.VolumeId)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content := files{}
	if err := errors.Join(json.NewDecoder(response.Body).Decode(&content), os.RemoveAll(own), os.MkdirAll(own, 0o755)); err != nil {
		return nil, err
	}
	for name, bytes := range content {
		if err := os.WriteFile(filepath.Join(own, filepath.Base(name)), bytes, 0o644); err != nil {
			return nil, err
		}
	}
	log.Printf("stage %s: %d files", asked.VolumeId, len(content))
	return &csi.NodeStageVolumeResponse{}, bind(own, asked.StagingTargetPath)
}

func (n *node) NodeUnstageVolume(_ context.Context, asked *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	if _, err := os.Stat(busy); err == nil {
		return nil, status.Error(codes.Internal, "the volume is busy")
	}
	own := filepath.Join(data, asked.VolumeId)
	if mounted(asked.StagingTargetPath) {
		if err := syscall.Unmount(asked.StagingTargetPath, 0); err != nil {
			return nil, err
		}
	}
	entries, err := os.ReadDir(own)
	if errors.Is(err, os.ErrNotExist) {
		return &csi.NodeUnstageVolumeResponse{}, nil
	}
	content := files{}
	for _, entry := range entries {
		if content[entry.Name()], err = os.ReadFile(filepath.Join(own, entry.Name())); err != nil {
			return nil, err
		}
	}
	sent, _ := json.Marshal(content)
	request, err := http.NewRequest(http.MethodPut, n.store+"/"+asked.VolumeId, bytes.NewReader(sent))
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	response.Body.Close()
	log.Printf("unstage %s: %d files", asked.VolumeId, len(content))
	return &csi.NodeUnstageVolumeResponse{}, os.RemoveAll(own)
}

func (n *node) NodePublishVolume(_ context.Context, asked *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	if mounted(asked.TargetPath) {
		return &csi.NodePublishVolumeResponse{}, nil
	}
	return &csi.NodePublishVolumeResponse{}, errors.Join(os.MkdirAll(asked.TargetPath, 0o755), bind(asked.StagingTargetPath, asked.TargetPath))
}

func (n *node) NodeUnpublishVolume(_ context.Context, asked *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	if mounted(asked.TargetPath) {
		if err := syscall.Unmount(asked.TargetPath, 0); err != nil {
			return nil, err
		}
	}
	if err := os.Remove(asked.TargetPath); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return &csi.NodeUnpublishVolumeResponse{}, nil
}

func bind(from, to string) error {
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", from, to, err)
	}
	return nil
}

func mounted(path string) bool {
	all, _ := os.ReadFile("/proc/self/mountinfo")
	return strings.Contains(string(all), " "+path+" ")
}
