package main

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// As kubeadm makes them: RSA with 2048 bits.
type identity struct {
	certificate *x509.Certificate
	key         *rsa.PrivateKey
	certPEM     []byte
	keyPEM      []byte
}

var (
	authority, etcdAuthority              *identity
	admin, controllers, scheduler         *identity
	etcdClient, kubeletClient, selfSigned *identity
	serverOf                              = map[string]*identity{}
	etcdServerOf                          = map[string]*identity{}
	serial                                int64
	serverKey                             *rsa.PrivateKey
)

func issue(name string, organizations []string, by *identity, names []string, addresses []net.IP, key *rsa.PrivateKey) *identity {
	if key == nil {
		var err error
		key, err = rsa.GenerateKey(rand.Reader, 2048)
		check(err, "a key")
	}
	serial++
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: name, Organization: organizations},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    names, IPAddresses: addresses, BasicConstraintsValid: true,
	}
	parent, signer := template, key
	if by == nil {
		template.IsCA, template.KeyUsage, template.ExtKeyUsage = true, x509.KeyUsageCertSign|x509.KeyUsageDigitalSignature, nil
		template.DNSNames = names
	} else {
		parent, signer = by.certificate, by.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	check(err, name)
	certificate, err := x509.ParseCertificate(der)
	check(err, name)
	return &identity{
		certificate, key,
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
	}
}

func makeAuthorities() {
	authority = issue("kubernetes", nil, nil, []string{"kubernetes"}, nil, nil)
	etcdAuthority = issue("etcd-ca", nil, nil, []string{"etcd-ca"}, nil, nil)
	admin = issue("kubernetes-admin", []string{"kubeadm:cluster-admins"}, authority, nil, nil, nil)
	controllers = issue("system:kube-controller-manager", nil, authority, nil, nil, nil)
	scheduler = issue("system:kube-scheduler", nil, authority, nil, nil, nil)
	etcdClient = issue("kube-apiserver-etcd-client", nil, etcdAuthority, nil, nil, nil)
	kubeletClient = issue("kube-apiserver-kubelet-client", []string{"kubeadm:cluster-admins"}, authority, nil, nil, nil)
	selfSigned = issue("localhost@1", nil, authority, []string{"localhost"}, nil, nil)
	var addresses []net.IP
	names := []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"}
	addresses = append(addresses, net.ParseIP("127.0.0.1"), net.ParseIP("10.96.0.1"))
	for _, h := range config.Hosts {
		if h.Role == "control-plane" {
			serverOf[h.Name] = issue("kube-apiserver", nil, authority, append([]string{h.Name}, names...),
				append(addresses, net.ParseIP(h.Address)), nil)
			etcdServerOf[h.Name] = issue(h.Name, nil, etcdAuthority, []string{h.Name, "localhost"},
				[]net.IP{net.ParseIP("127.0.0.1"), net.ParseIP(h.Address)}, nil)
		}
	}
}

func kubeconfig(address, user, certificate, key string) string {
	who := "    client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n"
	if key != "" {
		who = fmt.Sprintf("    client-certificate-data: %s\n    client-key-data: %s\n", certificate, key)
	}
	return fmt.Sprintf(`apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: %s
    server: https://%s:6443
  name: kubernetes
contexts:
- context:
    cluster: kubernetes
    user: %s
  name: %s@kubernetes
current-context: %s@kubernetes
kind: Config
users:
- name: %s
  user:
%s`, base64.StdEncoding.EncodeToString(authority.certPEM), address, user, user, user, user, who)
}

func (i *identity) config(address, user string) string {
	return kubeconfig(address, user, base64.StdEncoding.EncodeToString(i.certPEM), base64.StdEncoding.EncodeToString(i.keyPEM))
}

// writePKI writes what kubeadm has on a control-plane node.
func writePKI(h *Host) {
	pair := func(path string, one *identity) {
		h.write("etc/kubernetes/pki/"+path+".crt", string(one.certPEM), 0o644)
		h.write("etc/kubernetes/pki/"+path+".key", string(one.keyPEM), 0o600)
	}
	pair("ca", authority)
	pair("etcd/ca", etcdAuthority)
	pair("etcd/server", etcdServerOf[h.Name])
	pair("apiserver", serverOf[h.Name])
	pair("apiserver-etcd-client", etcdClient)
	pair("apiserver-kubelet-client", kubeletClient)
	for name, user := range map[string]*identity{"admin": admin, "super-admin": admin, "controller-manager": controllers, "scheduler": scheduler} {
		who := map[string]string{"admin": "kubernetes-admin", "super-admin": "kubernetes-super-admin",
			"controller-manager": "system:kube-controller-manager", "scheduler": "system:kube-scheduler"}[name]
		h.write("etc/kubernetes/"+name+".conf", user.config(h.Address, who), 0o600)
	}
}

func (i *identity) serving(clients *identity, handshake func()) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(clients.certificate)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{i.certificate.Raw}, PrivateKey: i.key}},
		ClientCAs:    pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		VerifyConnection: func(tls.ConnectionState) error { handshake(); return nil },
	}
}
